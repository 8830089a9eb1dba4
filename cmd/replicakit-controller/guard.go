// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// How long answers of the API server about a client are believed. A client that comes each
// 15 seconds costs one question a minute, also if its token is wrong.
const (
	tokenBelieved   = time.Minute
	rightBelieved   = 5 * time.Minute
	refusalBelieved = 30 * time.Second
	// reviewPatience is how long the API server may take for an answer.
	reviewPatience = 10 * time.Second
)

// errUnanswered is the cause of an error if the API server has not said whether a token is right.
var errUnanswered = errors.New("the API server does not say who the client is")

// A guard lets those clients pass that the API server lets get the path, and all clients to
// the paths that are open.
type guard struct {
	logger  klog.Logger
	open    authorizer.Authorizer
	clients authenticator.Request
	rights  authorizer.Authorizer
	inside  http.Handler
}

// newGuard returns a handler that guards inside.
func newGuard(logger klog.Logger, client kubernetes.Interface, open []string, inside http.Handler) (http.Handler, error) {
	opened, err := path.NewAuthorizer(open)
	if err != nil {
		return nil, err
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             rightBelieved,
		DenyCacheTTL:              refusalBelieved,
		WebhookRetryBackoff:       &wait.Backoff{Steps: 1}, // the client asks again
	}.New()
	g := &guard{logger: logger, open: opened, rights: rights, inside: inside}
	g.clients = bearertoken.New(cache.New(g.reviewer(client), false, tokenBelieved, tokenBelieved))
	return g, err
}

// reviewer asks the API server about tokens. The library's own takes a wrong token for an
// error, as the server tells the two in one field, and so would neither cache it nor answer 401.
func (g *guard) reviewer(client kubernetes.Interface) authenticator.TokenFunc {
	return func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewPatience)
		defer cancel()
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review, err := client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", errUnanswered, err)
		}
		if !review.Status.Authenticated {
			g.logger.V(2).Info("A client of the metrics has a wrong token", "says", review.Status.Error)
			return nil, false, nil
		}
		who := review.Status.User
		extra := map[string][]string{}
		for key, values := range who.Extra {
			extra[key] = values
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
	}
}

// ServeHTTP answers 401 if nobody knows the client, 403 if it may not get the path, and 500 if
// the API server cannot be asked.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, err := g.check(r)
	if err != nil {
		g.logger.Error(err, "Whether a client may get a path is not known", "path", r.URL.Path)
	}
	if code != http.StatusOK {
		http.Error(w, http.StatusText(code), code)
		return
	}
	g.inside.ServeHTTP(w, r)
}

func (g *guard) check(r *http.Request) (code int, err error) {
	asked := authorizer.AttributesRecord{Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	if decision, _, err := g.open.Authorize(r.Context(), asked); err == nil && decision == authorizer.DecisionAllow {
		return http.StatusOK, nil
	}
	client, known, err := g.clients.AuthenticateRequest(r)
	switch {
	case errors.Is(err, errUnanswered):
		return http.StatusInternalServerError, err
	case !known: // no token, or a wrong one, which the library calls an error
		return http.StatusUnauthorized, nil
	}
	asked.User = client.User
	decision, _, err := g.rights.Authorize(r.Context(), asked)
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case decision != authorizer.DecisionAllow:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
