package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// sealPrefix is the start of a sealed secret.
const sealPrefix = "sealed:"

// sealer encrypts secrets before they are stored, if it has a key.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) sealer {
	if key == nil {
		return sealer{}
	}
	hashed := sha256.Sum256(key)
	block, err := aes.NewCipher(hashed[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return sealer{aead}
}

// seal returns the stored form of a webhook's secret. A sealed one is returned as it is.
func (s sealer) seal(id, secret string) string {
	if s.aead == nil || strings.HasPrefix(secret, sealPrefix) {
		return secret
	}
	return sealPrefix + base64.StdEncoding.EncodeToString(s.aead.Seal(nil, nil, []byte(secret), []byte(id)))
}

// open returns the secret of a webhook.
func (s sealer) open(id, stored string) (string, error) {
	text, sealed := strings.CutPrefix(stored, sealPrefix)
	if !sealed {
		return stored, nil
	}
	if s.aead == nil {
		return "", errors.New("its secret is sealed: start the server with --secret-key-file")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) < s.aead.Overhead() {
		return "", errors.New("its sealed secret is damaged")
	}
	secret, err := s.aead.Open(nil, nil, raw, []byte(id))
	if err != nil {
		return "", errors.New("its secret was sealed with a key other than the one in --secret-key-file")
	}
	return string(secret), nil
}
