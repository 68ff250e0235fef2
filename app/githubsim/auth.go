package githubsim

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A caller is who a request comes from: an App by its JWT, an installation by
// its token, or nobody.
type caller struct {
	app          *app
	installation *installation
	token        *token // nil for an App that speaks as itself
}

// may tells whether the caller's token has a permission at a level.
func (c caller) may(permission, level string) bool {
	if c.token == nil {
		return false
	}
	if permission == "metadata" && level == "read" {
		return true
	}
	return levels[c.token.Permissions[permission]] >= levels[level]
}

// sees tells whether the caller's token reaches a repository.
func (c caller) sees(r *repo) bool {
	if c.token == nil || !c.installation.covers(r) {
		return false
	}
	if len(c.token.Repos) == 0 {
		return true
	}
	for _, id := range c.token.Repos {
		if id == r.ID {
			return true
		}
	}
	return false
}

var levels = map[string]int{"": 0, "read": 1, "write": 2, "admin": 3}

var errCredentials = &apiError{Status: http.StatusUnauthorized, Message: "Bad credentials"}

// identify reads the Authorization header. The caller holds mu.
func (s *Server) identify(r *http.Request) (caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return caller{}, nil
	}
	scheme, secret, _ := strings.Cut(header, " ")
	switch strings.ToLower(scheme) {
	case "bearer", "token":
		if strings.Count(secret, ".") == 2 && !strings.HasPrefix(secret, "ghs_") {
			return s.identifyApp(secret)
		}
		return s.identifyToken(secret)
	case "basic":
		_, password, ok := r.BasicAuth()
		if ok {
			return s.identifyToken(password)
		}
	}
	return caller{}, errCredentials
}

func (s *Server) identifyToken(secret string) (caller, error) {
	digest := digestOf(secret)
	t := find(s.state.Tokens, func(t *token) bool { return t.Digest == digest })
	if t == nil || !s.now().Before(t.Expires) {
		return caller{}, errCredentials
	}
	i := s.state.installation(t.Installation)
	if i == nil {
		return caller{}, errCredentials
	}
	if i.Suspended != nil {
		return caller{}, &apiError{Status: http.StatusForbidden, Message: "This installation has been suspended"}
	}
	return caller{app: s.state.app(i.App), installation: i, token: t}, nil
}

// appClaims are what GitHub reads of an App's JWT. The issuer may be the id as
// a number or as text.
type appClaims struct {
	Issued  *json.Number    `json:"iat"`
	Expires *json.Number    `json:"exp"`
	Issuer  json.RawMessage `json:"iss"`
}

func (s *Server) identifyApp(jwt string) (caller, error) {
	refuse := func(message string) (caller, error) {
		return caller{}, &apiError{Status: http.StatusUnauthorized, Message: message}
	}
	parts := strings.Split(jwt, ".")
	var header struct {
		Algorithm string `json:"alg"`
	}
	var claims appClaims
	if decodePart(parts[0], &header) != nil || decodePart(parts[1], &claims) != nil || header.Algorithm != "RS256" {
		return refuse("A JSON web token could not be decoded")
	}
	now := s.clock()
	issued, okIssued := seconds(claims.Issued)
	expires, okExpires := seconds(claims.Expires)
	switch {
	case !okIssued || issued.After(now.Add(time.Minute)):
		return refuse("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case !okExpires || !expires.After(now):
		return refuse("'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case expires.After(now.Add(10*time.Minute + 30*time.Second)):
		return refuse("'Expiration time' claim ('exp') is too far in the future")
	}
	id, err := strconv.ParseInt(strings.Trim(string(claims.Issuer), `"`), 10, 64)
	if err != nil {
		return refuse("'Issuer' claim ('iss') must be an Integer")
	}
	a := s.state.app(id)
	if a == nil {
		return refuse("Integration not found")
	}
	key, err := parseKey(a.PrivateKey)
	if err != nil {
		return caller{}, err
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		return refuse("A JSON web token could not be decoded")
	}
	return caller{app: a}, nil
}

func seconds(n *json.Number) (time.Time, bool) {
	if n == nil {
		return time.Time{}, false
	}
	f, err := n.Float64()
	return time.Unix(int64(f), 0), err == nil
}

func decodePart(part string, v any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func newKey() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", fmt.Errorf("generate a private key: %w", err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return string(pem.EncodeToMemory(block)), nil
}

func parseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("parse the App's private key: no PEM block")
	}
	return x509.ParsePKCS1PrivateKey(block.Bytes)
}

// newToken makes a token of the long, stateless-looking shape. Nothing in it
// means anything: only its digest is kept.
func newToken(app int64) (secret, digest string) {
	part := func(n int) string {
		raw := make([]byte, n)
		_, _ = rand.Read(raw) // crypto/rand never fails
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	secret = fmt.Sprintf("ghs_%d_eyJ%s.eyJ%s.%s", app, part(60), part(210), part(64))
	return secret, digestOf(secret)
}

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
