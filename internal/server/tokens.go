package server

import (
	"errors"
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// getOwnToken responds with what the caller's token is.
func (s *Server) getOwnToken(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusOK, append(wire.EncodeToken(w.(*recorder).caller.Info(), ""), '\n'))
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) error {
	asked, err := readJSON(s, w, r, wire.DecodeNewToken)
	if err != nil {
		return err
	}
	caller := w.(*recorder).caller
	token, err := asked.Grant(&caller.Token, caller.RateLimit(), time.Now().UTC().Truncate(time.Second))
	if err != nil {
		return err
	}
	secret := plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(secret)
	err = s.store.CreateToken(r.Context(), token, caller.Actor())
	if errors.Is(err, plantstore.ErrTooMany) {
		return plantstore.Errorf(plantstore.ErrTooMany, "there are %d active tokens already, the maximum: revoke one first", plantstore.MaxTokens)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", s.baseURL+"/tokens/"+token.Hash.ID())
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusCreated, append(wire.EncodeToken(token.Info(), secret), '\n'))
}

func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.readTokens(w, r)
	if err != nil {
		return err
	}
	w.Header()["Cache-Control"] = headerNoStore
	return writePage(s, w, tokens, tokenTexts, func(dst []byte, t plantstore.Token) ([]byte, error) {
		return append(dst, wire.EncodeToken(t.Info(), "")...), nil
	})
}

func tokenTexts(t plantstore.Token) (name, tag string) { return t.Name, "" }

// readTokens reads all tokens when it is the caller's turn.
func (s *Server) readTokens(w http.ResponseWriter, r *http.Request) ([]plantstore.Token, error) {
	caller := tokenOf(w)
	if err := s.access.acquire(r.Context(), caller, 1); err != nil {
		return nil, err
	}
	defer s.access.release(caller, 1)
	return s.store.Tokens(r.Context())
}

func (s *Server) getToken(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.readTokens(w, r)
	if err != nil {
		return err
	}
	token, err := tokenWithID(tokens, r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusOK, append(wire.EncodeToken(token.Info(), ""), '\n'))
}

// revokeToken revokes a token, unless nobody could create another then. A token that is
// revoked already stays so.
func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.readTokens(w, r)
	if err != nil {
		return err
	}
	token, err := tokenWithID(tokens, r.PathValue("id"))
	if err != nil {
		return err
	}
	err = s.store.RevokeToken(r.Context(), token.Hash, time.Now(), actor(w))
	switch {
	case errors.Is(err, plantstore.ErrLastToken):
		return plantstore.Errorf(plantstore.ErrLastToken, "token %s is the last one with the scope %s: create another first, or use plantstore token revoke with --db",
			token.Hash.ID(), plantstore.ScopeTokensWrite)
	case errors.Is(err, plantstore.ErrNoSuchToken): // it had ended, and has been deleted since
		return noTokenID(token.Hash.ID())
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func tokenWithID(tokens []plantstore.Token, id string) (*plantstore.Token, error) {
	for i := range tokens {
		if tokens[i].Hash.ID() == id {
			return &tokens[i], nil
		}
	}
	return nil, noTokenID(id)
}

func noTokenID(id string) error {
	return plantstore.Errorf(plantstore.ErrNoTokenID, "there is no token with the id %q", plantstore.Shorten(id))
}
