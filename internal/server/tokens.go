package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

func (s *Server) getOwnToken(c *call) error {
	return writeNoStore(c, http.StatusOK, wire.EncodeToken(c.caller.Info(), ""))
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
	c.w.Header().Set("Location", s.baseURL+"/tokens/"+token.Hash.ID())
	return writeNoStore(c, http.StatusCreated, wire.EncodeToken(token.Info(), secret))
}

func (s *Server) listTokens(c *call) error {
	tokens, err := inTurn(c, reads, accessUnits, s.Store.Tokens)
	if err != nil {
		return err
	}
	c.w.Header()["Cache-Control"] = headerNoStore
	return writePage(c, tokens, tokenTexts, func(dst []byte, t plantstore.Token) ([]byte, error) {
		return append(dst, wire.EncodeToken(t.Info(), "")...), nil
	})
}

func tokenTexts(t plantstore.Token) (name, tag string) { return t.Name, "" }

func (s *Server) getToken(c *call) error {
	token, err := s.readToken(c)
	if err != nil {
		return err
	}
	return writeNoStore(c, http.StatusOK, wire.EncodeToken(token.Info(), ""))
}

// revokeToken revokes a token, unless nobody could create another then. A token that is
// revoked already stays so.
func (s *Server) revokeToken(c *call) error {
	if err := s.checkCaller(c); err != nil {
		return err
	}
	token, err := s.readToken(c)
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
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkCaller refuses a caller whose token has ended, as the store does in the transaction of a
// change: the server may not know it yet. It is for what is read before the transaction, or
// needs none.
func (s *Server) checkCaller(c *call) error {
	by := c.caller.Actor()
	return by.Check(func(hash plantstore.TokenHash) (plantstore.Token, error) { return s.Store.Token(c.r.Context(), hash) })
}

// readToken returns the token in the path.
func (s *Server) readToken(c *call) (plantstore.Token, error) {
	id := c.target
	token, err := inTurn(c, reads, listUnits, func(ctx context.Context) (plantstore.Token, error) { return s.Store.TokenWithID(ctx, id) })
	if errors.Is(err, plantstore.ErrNoSuchToken) {
		err = noTokenID(id)
	}
	return token, err
}

func noTokenID(id string) error {
	return plantstore.Errorf(plantstore.ErrNoTokenID, "there is no token with the id %q", plantstore.Shorten(id))
}
