package plantstore_test

import (
	"testing"

	"plantstore"
)

func TestReportsAddUpAndKeepTheFirstErrors(t *testing.T) {
	var sum plantstore.ImportReport
	for first := range int64(3) {
		part := plantstore.ImportReport{Created: 1, Unchanged: 2, Failed: 70}
		for i := range part.Failed {
			part.Errors = append(part.Errors, plantstore.LineError{Line: 3*i + first + 1})
		}
		sum.Add(part)
	}
	if sum.Created != 3 || sum.Unchanged != 6 || sum.Failed != 210 || len(sum.Errors) != plantstore.MaxLineErrors {
		t.Errorf("the sum is %+v", sum)
	}
	for i, e := range sum.Errors {
		if e.Line != int64(i+1) {
			t.Fatalf("error %d is of line %d", i, e.Line)
		}
	}
}
