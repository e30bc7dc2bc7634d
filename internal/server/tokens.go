package server

import (
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// maxTokens is how many tokens the store may have, revoked ones included, for another to
// be created over HTTP.
const maxTokens = 10_000

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
	token, err := asked.Grant(caller.Scopes, caller.Expires, time.Now().UTC().Truncate(time.Second))
	if err != nil {
		return err
	}
	s.changingTokens.Lock()
	defer s.changingTokens.Unlock()
	tokens, err := s.store.Tokens(r.Context())
	if err != nil {
		return err
	}
	if len(tokens) >= maxTokens {
		return plantstore.Errorf(plantstore.ErrTooMany, "there are %d tokens already, the maximum", len(tokens))
	}
	secret := plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(secret)
	if err := s.store.CreateToken(r.Context(), token); err != nil {
		return err
	}
	w.Header().Set("Location", s.baseURL+"/tokens/"+token.Hash.ID())
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusCreated, append(wire.EncodeToken(token.Info(), secret), '\n'))
}

func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.store.Tokens(r.Context())
	if err != nil {
		return err
	}
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, http.StatusOK, append(wire.EncodeTokens(tokens), '\n'))
}

func (s *Server) getToken(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.store.Tokens(r.Context())
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
	s.changingTokens.Lock()
	defer s.changingTokens.Unlock()
	tokens, err := s.store.Tokens(r.Context())
	if err != nil {
		return err
	}
	token, err := tokenWithID(tokens, r.PathValue("id"))
	if err != nil {
		return err
	}
	now, others := time.Now(), 0
	creates := func(t *plantstore.Token) bool {
		return t.Revoked.IsZero() && !t.ExpiredAt(now) && t.Allows(plantstore.ScopeTokensWrite)
	}
	for i := range tokens {
		if tokens[i].Hash != token.Hash && creates(&tokens[i]) {
			others++
		}
	}
	if creates(token) && others == 0 {
		return plantstore.Errorf(plantstore.ErrLastToken, "token %s is the last one with the scope %s: create another first, or use plantstore token revoke with --db",
			token.Hash.ID(), plantstore.ScopeTokensWrite)
	}
	if err := s.store.RevokeToken(r.Context(), token.Hash, now); err != nil {
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
	return nil, plantstore.Errorf(plantstore.ErrNoTokenID, "there is no token with the id %q", plantstore.Shorten(id))
}
