package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"plantstore/internal/cli"
)

// StateFile keeps the state of a copy from one server to another. Without a name it keeps nothing.
type StateFile struct{ Name, From, To string }

// savedState is the content of the file.
type savedState struct {
	From string `json:"from"`
	To   string `json:"to"`
	State
}

// Load returns the state to resume from, which is empty if there is none.
func (f StateFile) Load() (State, error) {
	if f.Name == "" {
		return State{}, nil
	}
	text, err := os.ReadFile(f.Name)
	if errors.Is(err, os.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var saved savedState
	if err := json.Unmarshal(text, &saved); err != nil {
		return State{}, fmt.Errorf("%s is not a state file: %w", f.Name, err)
	}
	if saved.Cursor == "" {
		return State{}, nil // the first comparison has not ended
	}
	if cli.ServerKey(saved.From) != cli.ServerKey(f.From) || cli.ServerKey(saved.To) != cli.ServerKey(f.To) {
		return State{}, fmt.Errorf("%s is the state of a copy from %s to %s: use another file", f.Name, saved.From, saved.To)
	}
	return saved.State, nil
}

// Save replaces the file.
func (f StateFile) Save(state State) error {
	if f.Name == "" {
		return nil
	}
	err := cli.WriteFile(context.Background(), f.Name, func(out io.Writer) error {
		return json.NewEncoder(out).Encode(savedState{f.From, f.To, state})
	})
	if err != nil {
		return fmt.Errorf("cannot write the state file: %w", err)
	}
	return nil
}
