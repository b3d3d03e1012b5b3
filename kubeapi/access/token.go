package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	authnv1 "k8s.io/api/authentication/v1"
)

// bearer is the user of a token in the Authorization header.
func (a *Access) bearer(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.Tokens == nil {
		return nil, nil
	}
	token := bearerToken(r.Header.Get("Authorization"))
	if token == "" {
		return nil, nil
	}
	user, err := a.tokenUser(r.Context(), token)
	if user != nil {
		r.Header.Del("Authorization")
	}
	return user, err
}

// bearerToken takes the token out of a header value; empty: there is none.
func bearerToken(header string) string {
	parts := strings.SplitN(strings.TrimSpace(header), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}

const protocols = "Sec-Websocket-Protocol"

// protocol is the user of a token that a browser shows as a websocket subprotocol.
func (a *Access) protocol(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.Tokens == nil || !isWebsocket(r.Header) {
		return nil, nil
	}
	token, others, err := protocolToken(r.Header[protocols])
	if token == "" || err != nil {
		return nil, err
	}
	user, err := a.tokenUser(r.Context(), token)
	if user != nil {
		r.Header.Set(protocols, strings.Join(others, ","))
	}
	return user, err
}

func isWebsocket(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return false
	}
	for _, v := range h.Values("Connection") {
		if strings.Contains(strings.ToLower(v), "upgrade") {
			return true
		}
	}
	return false
}

// protocolToken takes the token out of the list of subprotocols and returns the others, of which one must remain for
// the server to choose.
func protocolToken(headers []string) (token string, others []string, err error) {
	seen := false
	for p := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		p = strings.TrimSpace(p)
		encoded, ok := strings.CutPrefix(p, "base64url.bearer.authorization.k8s.io.")
		if !ok {
			others = append(others, p)
			continue
		}
		if seen {
			return "", nil, errors.New("more than one bearer token among the subprotocols")
		}
		seen = true
		text, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || !utf8.Valid(text) {
			return "", nil, errors.New("the bearer token among the subprotocols is not text in base64url without padding")
		}
		token = string(text)
	}
	if token != "" && len(others) == 0 {
		return "", nil, errors.New("a bearer token is the only subprotocol; another one is needed to agree on")
	}
	return token, others, nil
}

var errBadToken = errors.New("invalid bearer token")

// tokenUser asks what a token is worth. It returns a user or an error.
func (a *Access) tokenUser(ctx context.Context, token string) (*authnv1.UserInfo, error) {
	user, err := a.tokens.get(ctx, a.keys.token(token), func(ctx context.Context) (identity, error) {
		return a.reviewToken(ctx, token)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("bearer token: %w", err)
	case user == nil:
		return nil, errBadToken
	}
	return user, nil
}
