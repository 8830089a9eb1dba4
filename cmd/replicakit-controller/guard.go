// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// tokenBelieved, rightBelieved and refusalBelieved limit how long the API server's answers about a
// client are cached. A client that sends a request every 15 seconds causes about one API call per
// minute, even if its token is wrong.
const (
	tokenBelieved   = time.Minute
	rightBelieved   = 5 * time.Minute
	refusalBelieved = 30 * time.Second
	// reviewPatience is the timeout for the API calls that check one request.
	reviewPatience = 10 * time.Second
)

// wrongTokens is the maximum number of wrong tokens per address and minute. The limit protects the
// API server from too many calls, and the log from too many messages. After the API server has
// accepted a token, the limit does not apply to this token for the duration rightRemembered, unless
// the API server rejects the token in that time.
const (
	wrongTokens     = 10
	rightRemembered = time.Hour
)

// errTooManyTokens is the error for an address that has sent too many wrong tokens.
var errTooManyTokens = errors.New("too many wrong tokens from this address")

// A guard forwards requests for open paths directly to the wrapped handler. For all other paths,
// the guard first asks the API server whether the client has the right to get the path.
type guard struct {
	logger klog.Logger
	client kubernetes.Interface
	open   authorizer.Authorizer
	inside http.Handler

	tokens    *cache.LRUExpireCache // maps the hash of a token to its *tokenAnswer
	rights    *cache.LRUExpireCache // maps a question to the API server's answer, which is a bool
	addresses *cache.LRUExpireCache // maps a host to its number of wrong tokens in this minute, which is an *atomic.Int32
}

// A tokenAnswer records whether a token is valid, and the user of a valid token.
type tokenAnswer struct {
	right bool
	user  authenticationv1.UserInfo
	until time.Time
}

// A question asks whether the user of a token is allowed to use a verb on a path. It is the key of
// a cached answer.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// newGuard returns a handler that passes only allowed requests to the given handler. Requests for
// the open paths are always allowed.
func newGuard(logger klog.Logger, client kubernetes.Interface, open []string, inside http.Handler) (http.Handler, error) {
	opened, err := path.NewAuthorizer(open)
	return &guard{
		logger: logger, client: client, open: opened, inside: inside,
		tokens: cache.NewLRUExpireCache(1024), rights: cache.NewLRUExpireCache(1024), addresses: cache.NewLRUExpireCache(1024),
	}, err
}

// ServeHTTP answers 401 if the client is unknown, and 403 if the client has no right to get the
// path. It answers 429 if the client's address has sent too many wrong tokens, and 500 if the API
// server does not answer.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, err := g.check(r)
	if err != nil {
		g.logger.Error(err, "Cannot find out whether a client may get a path", "path", r.URL.Path)
	}
	if code != http.StatusOK {
		http.Error(w, http.StatusText(code), code)
		return
	}
	g.inside.ServeHTTP(w, r)
}

func (g *guard) check(r *http.Request) (code int, err error) {
	verb := strings.ToLower(r.Method)
	asked := authorizer.AttributesRecord{Verb: verb, Path: r.URL.Path}
	if decision, _, err := g.open.Authorize(r.Context(), asked); err == nil && decision == authorizer.DecisionAllow {
		return http.StatusOK, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewPatience)
	defer cancel()
	client, err := g.clientOf(ctx, token, r.RemoteAddr)
	switch {
	case errors.Is(err, errTooManyTokens):
		return http.StatusTooManyRequests, nil
	case err != nil:
		return http.StatusInternalServerError, fmt.Errorf("cannot get the user of the client from the API server: %w", err)
	case !client.right:
		return http.StatusUnauthorized, nil
	}
	allowed, err := g.isAllowed(ctx, client.user, question{sha256.Sum256([]byte(token)), verb, r.URL.Path})
	switch {
	case err != nil:
		return http.StatusInternalServerError, fmt.Errorf("cannot get the rights of the client from the API server: %w", err)
	case !allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// clientOf returns the user that a token belongs to.
func (g *guard) clientOf(ctx context.Context, token, address string) (*tokenAnswer, error) {
	key := sha256.Sum256([]byte(token))
	kept, _ := g.tokens.Get(key)
	answer, _ := kept.(*tokenAnswer)
	if answer != nil && time.Now().Before(answer.until) {
		return answer, nil
	}
	wrong := g.wrongOf(address)
	if (answer == nil || !answer.right) && wrong.Load() >= wrongTokens {
		return nil, errTooManyTokens
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	answer = &tokenAnswer{right: review.Status.Authenticated, user: review.Status.User, until: time.Now().Add(tokenBelieved)}
	if !answer.right {
		wrong.Add(1)
		g.logger.V(2).Info("A client of the metrics has a wrong token", "says", review.Status.Error)
	}
	g.tokens.Add(key, answer, rightRemembered)
	return answer, nil
}

func (g *guard) wrongOf(address string) *atomic.Int32 {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if kept, found := g.addresses.Get(host); found {
		return kept.(*atomic.Int32) //nolint:forcetypeassert // all are
	}
	wrong := &atomic.Int32{}
	g.addresses.Add(host, wrong, time.Minute)
	return wrong
}

// isAllowed reports whether the user has the right to use asked.verb on asked.path.
func (g *guard) isAllowed(ctx context.Context, user authenticationv1.UserInfo, asked question) (bool, error) {
	if kept, found := g.rights.Get(asked); found {
		return kept == true, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: asked.verb, Path: asked.path},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	believed := refusalBelieved
	if review.Status.Allowed {
		believed = rightBelieved
	}
	g.rights.Add(asked, review.Status.Allowed, believed)
	return review.Status.Allowed, nil
}
