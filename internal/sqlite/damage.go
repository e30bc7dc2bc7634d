package sqlite

import (
	"errors"
	"fmt"

	"plantstore"
)

// Damaged returns why the store is known to be damaged, or no longer to be in its place, or nil.
// It then refuses writes, and serves what can still be read.
func (s *Store) Damaged() error {
	if err := s.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// markDamaged records an error that says that the file is damaged.
func (s *Store) markDamaged(err error) error { return s.refuseWrites(damageAdvice, err) }

// refuseWrites records the first error after which the store refuses writes, and logs what to
// do about it. It returns the error with that advice.
func (s *Store) refuseWrites(advice string, err error) error {
	damage := withAdvice(advice, err)
	if s.damage.CompareAndSwap(nil, &damage) {
		s.Log.Error(advice+". Until then it refuses writes", "db", s.path, "err", err)
	}
	return damage
}

// withAdvice adds what to do about an error.
func withAdvice(advice string, err error) error {
	return fmt.Errorf("%w: %w", plantstore.Errorf(plantstore.ErrUnavailable, "%s", advice), err)
}

const damageAdvice = "the store is damaged: stop the server and run plantstore check; if it finds problems, restore a backup"

// checkWritable returns why the store refuses writes, or nil if it does not.
func (s *Store) checkWritable() error {
	if err := s.checkTrusted(); err != nil {
		return err
	}
	return s.Damaged()
}

// classify wraps an error of the engine in the domain's errors, and records one that
// says that the file is damaged.
func (s *Store) classify(err error) error {
	err = classify(s.path, err)
	if errors.Is(err, plantstore.ErrDamaged) {
		return s.markDamaged(err)
	}
	return err
}

// inconsistent returns an error that says that the tables contradict each other, which
// only damage explains.
func inconsistent(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", plantstore.ErrUnavailable, plantstore.ErrDamaged, fmt.Errorf(format, args...))
}
