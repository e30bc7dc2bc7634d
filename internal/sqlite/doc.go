// Package sqlite keeps the store in one SQLite file: the embedded store.
//
// A write is appended to the log of changes (apply.go), and is then durable and visible. The
// table of plants is brought up to date later, in runs sorted by id (flush.go), and with it the index
// of names, if there is one (search.go), and then the table of tagged plants (tags.go).
// Until then internal/memtable has the plant. A read takes it from there, or else from the table
// (read.go).
//
// One connection writes (writer.go), others read (readers.go), and one checkpoints
// (checkpoint.go), so that a reader never waits for the writer, nor the writer for a
// checkpoint. Reads of single plants, reads of tokens and webhooks, pages and scans each have
// connections of their own, so that short operations never wait for long ones.
//
// A command that only reads opens the file with [Look], which writes nothing (look.go). Only
// a server migrates the schema (schema.go).
//
// # Invariants
//
//  1. The rows of the log are numbered without gaps, and their times MUST NOT decrease. Rows
//     are only appended, and trimmed from the oldest on.
//  2. trimmed ≤ flushed ≤ the last row of the frozen generation ≤ the last row. The table has
//     every row up to flushed. Rows after it MUST NOT be trimmed.
//  3. The changes of a transaction MUST be in the active generation before its COMMIT, and
//     lastSeq MUST follow after it. So whoever sees a row in the log finds it in memory. If the
//     COMMIT fails, they are taken back.
//  4. A reader MUST load the generations before it begins its transaction, and MUST begin anew
//     if the active one was frozen before the snapshot's last row.
//  5. The table may be ahead of flushed, and the table of tagged plants behind the table, but only
//     for plants that have a row after flushed. Readers MUST take those from memory, whatever the
//     tables say about them. A transaction that changes a name in the table MUST change it in the
//     index of names, from what the table had: the index has the names of the table, of the plants
//     before search_next while it is built.
//  6. A flush MUST write final states, so that it can be repeated after a crash. The number of
//     plants and the size of the log are stored as of flushed, in the transaction that moves it.
//  7. Only the process that holds the locks writes plants, flushes and trims. Others MUST append
//     nothing except rows of tokens. The holder catches up with those before its next row. They
//     MUST NOT migrate the file either, so no server writes to a schema that it does not know.
//  8. A start trusts log_state and the rows after flushed, and nothing else.
//  9. A commit is synced before it is reported (synchronous=FULL), except of the progress of
//     webhooks, and of the steps that build or drop the index of names. After a failed sync nobody
//     knows what is on disk: the store MUST refuse everything from then on.
//  10. A server locks the name of the file, which keeps out releases until 0.2.0, and one byte of
//     the file itself, which keeps out servers that know it by another name. The descriptor with
//     that lock MUST be opened before SQLite opens the file, and closed after SQLite has closed
//     it, and nothing else in the process may open the file: when a process closes any descriptor
//     of a file, the kernel drops the locks that SQLite has on it there.
package sqlite
