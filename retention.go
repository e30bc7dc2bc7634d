package plantstore

// LogSample is one row of a log of changes: its number, and its approximate size.
type LogSample struct{ Seq, Bytes int64 }

// TrimTo returns the number of the last row to trim, so that those that remain, up to
// last, have about maxBytes, or 0 if all of them may stay. The sample has rows of the
// log in ascending order, evenly spread. Each stands for the rows from its own up to
// the next in the sample, so that a sample of all rows gives an exact result. Rows
// before the first one do not count.
func TrimTo(sample []LogSample, last, maxBytes int64) int64 {
	for i := len(sample) - 1; i >= 0; i-- {
		row := sample[i]
		size := max(row.Bytes, 1)
		n := last - row.Seq + 1
		if fit := maxBytes / size; fit < n {
			return last - fit
		}
		maxBytes -= n * size
		last = row.Seq - 1
	}
	return 0
}

// LogBytes returns the approximate size of the log that such a sample was taken from.
func LogBytes(sample []LogSample, last int64) (bytes int64) {
	for i := len(sample) - 1; i >= 0; i-- {
		bytes += (last - sample[i].Seq + 1) * sample[i].Bytes
		last = sample[i].Seq - 1
	}
	return bytes
}
