package server

import (
	"errors"
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// getOwnToken responds with what the caller's token is.
func (s *Server) getOwnToken(c *call) error {
	return writeToken(c, http.StatusOK, c.caller.Info(), "")
}

func (s *Server) createToken(c *call) error {
	asked, err := readJSON(c, wire.DecodeNewToken)
	if err != nil {
		return err
	}
	token, err := asked.Grant(&c.caller.Token, c.caller.RateLimit(), time.Now().UTC().Truncate(time.Second))
	if err != nil {
		return err
	}
	secret := plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(secret)
	err = s.Store.CreateToken(c.r.Context(), token, c.caller.Actor())
	if errors.Is(err, plantstore.ErrTooMany) {
		return plantstore.Errorf(plantstore.ErrTooMany, "there are %d active tokens already, the maximum: revoke one first", plantstore.MaxTokens)
	}
	if err != nil {
		return err
	}
	c.Header().Set("Location", s.baseURL+"/tokens/"+token.Hash.ID())
	return writeToken(c, http.StatusCreated, token.Info(), secret)
}

func writeToken(c *call, status int, token plantstore.TokenInfo, secret string) error {
	c.Header()["Cache-Control"] = headerNoStore
	return writeJSON(c, status, append(wire.EncodeToken(token, secret), '\n'))
}

func (s *Server) listTokens(c *call) error {
	tokens, err := s.readTokens(c)
	if err != nil {
		return err
	}
	c.Header()["Cache-Control"] = headerNoStore
	return writePage(c, tokens, tokenTexts, func(dst []byte, t plantstore.Token) ([]byte, error) {
		return append(dst, wire.EncodeToken(t.Info(), "")...), nil
	})
}

func tokenTexts(t plantstore.Token) (name, tag string) { return t.Name, "" }

// readTokens reads all tokens when it is the caller's turn.
func (s *Server) readTokens(c *call) ([]plantstore.Token, error) {
	return inTurn(c, reads, accessUnits, s.Store.Tokens)
}

func (s *Server) getToken(c *call) error {
	tokens, err := s.readTokens(c)
	if err != nil {
		return err
	}
	token, err := tokenWithID(tokens, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeToken(c, http.StatusOK, token.Info(), "")
}

// revokeToken revokes a token, unless nobody could create another then. A token that is
// revoked already stays so.
func (s *Server) revokeToken(c *call) error {
	tokens, err := s.readTokens(c)
	if err != nil {
		return err
	}
	token, err := tokenWithID(tokens, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	err = s.Store.RevokeToken(c.r.Context(), token.Hash, time.Now(), c.caller.Actor())
	switch {
	case errors.Is(err, plantstore.ErrLastToken):
		return plantstore.Errorf(plantstore.ErrLastToken, "token %s is the last one with the scope %s: create another first, or use plantstore token revoke with --db",
			token.Hash.ID(), plantstore.ScopeTokensWrite)
	case errors.Is(err, plantstore.ErrNoSuchToken): // it had ended, and has been deleted since
		return noTokenID(token.Hash.ID())
	case err != nil:
		return err
	}
	c.WriteHeader(http.StatusNoContent)
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
