package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	goclient "plantstore/client"
	"plantstore/internal/wire"
)

// goDriver drives the Go client in this process.
type goDriver struct {
	mu      sync.Mutex // guards clients
	clients map[string]*goclient.Client
}

func newGoDriver(t testing.TB) *goDriver {
	d := &goDriver{clients: map[string]*goclient.Client{}}
	t.Cleanup(func() {
		for _, c := range d.clients {
			c.CloseIdleConnections()
		}
	})
	return d
}

func (d *goDriver) do(j job) (outcome, error) {
	d.mu.Lock()
	c := d.clients[j.URL]
	if j.Op == "close" {
		delete(d.clients, j.URL)
		d.mu.Unlock()
		if c != nil {
			c.CloseIdleConnections()
		}
		return outcome{}, nil
	}
	if c == nil {
		var err error
		c, err = goclient.New(j.URL, j.Token, goclient.Options{
			Retries: j.Retries, RetryTimeout: time.Duration(j.RetryTimeout * float64(time.Second)),
		})
		if err != nil {
			d.mu.Unlock()
			return outcome{}, err
		}
		d.clients[j.URL] = c
	}
	d.mu.Unlock()
	value, err := invoke(c, j.Op, j.Args)
	reply := map[string]any{"value": value}
	if err != nil {
		reply["error"] = goError(err)
	}
	// Through JSON, like what the other drivers report.
	text, err := json.Marshal(reply)
	if err != nil {
		return outcome{}, err
	}
	var got outcome
	return got, json.Unmarshal(text, &got)
}

func goError(err error) map[string]any {
	var code plantstore.Code
	errors.As(err, &code)
	v := map[string]any{"code": int(code), "status": int(code) / 100, "message": err.Error()}
	if unknown, ok := errors.AsType[*goclient.OutcomeError](err); ok {
		now, err := storedValue(unknown.Now, unknown.ReadErr)
		v["unknown"] = map[string]any{"now": now}
		if err != nil {
			v["unknown"] = map[string]any{"readCode": goError(err)["code"]}
		}
	}
	return v
}

// arg returns an argument, or the zero value if it is absent.
func arg[T any](args map[string]any, name string) T {
	v, _ := args[name].(T)
	return v
}

func idArg(args map[string]any, name string) *plantstore.ID {
	text, ok := args[name].(string)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return new(plantstore.ID(n))
}

func plantArg(v any) plantstore.Plant {
	m := v.(map[string]any)
	p := plantstore.Plant{ID: *idArg(m, "id"), Name: arg[string](m, "name")}
	if tag, ok := m["tag"].(string); ok {
		p.Tag = plantstore.NewTag(tag)
	}
	return p
}

func conditionArg(args map[string]any) *plantstore.Condition {
	var c plantstore.Condition
	if tag := arg[string](args, "ifMatch"); tag != "" {
		c.Match = []plantstore.ETag{plantstore.ETag(tag)}
	}
	if tag := arg[string](args, "ifNoneMatch"); tag != "" {
		c.NoneMatch = []plantstore.ETag{plantstore.ETag(tag)}
	}
	if c.Match == nil && c.NoneMatch == nil {
		return nil
	}
	return &c
}

func queryArg(args map[string]any) plantstore.Query {
	q := plantstore.Query{
		After: idArg(args, "after"), Contains: arg[string](args, "q"), Limit: int(arg[float64](args, "limit")),
		Details: arg[bool](args, "details"), Order: plantstore.Order(arg[string](args, "order")), Untagged: arg[bool](args, "untagged"),
		Count: arg[bool](args, "count"), AfterName: plantstore.NameCursor(arg[string](args, "afterName")),
	}
	if tag, ok := args["tag"].(string); ok {
		q.Tag = plantstore.NewTag(tag)
	}
	for _, tag := range arg[[]any](args, "tag") {
		q.Tags = append(q.Tags, tag.(string))
	}
	if prefix, ok := args["tagPrefix"].(string); ok {
		q.TagPrefix = &prefix
	}
	if ids, ok := args["ids"].([]any); ok {
		q.IDs = []plantstore.ID{}
		for _, id := range ids {
			q.IDs = append(q.IDs, *idArg(map[string]any{"id": id}, "id"))
		}
	}
	return q
}

func timeArg(args map[string]any, name string) time.Time {
	at, _ := time.Parse(time.RFC3339, arg[string](args, name))
	return at
}

func typesArg(args map[string]any) []plantstore.EventType {
	var types []plantstore.EventType
	for _, t := range arg[[]any](args, "types") {
		types = append(types, plantstore.EventType(t.(string)))
	}
	return types
}

func eventQueryArg(args map[string]any) plantstore.EventQuery {
	return plantstore.EventQuery{
		After: plantstore.Cursor(arg[string](args, "after")), Since: timeArg(args, "since"),
		ID: idArg(args, "id"), Types: typesArg(args), By: arg[string](args, "by"), Contains: arg[string](args, "q"), Limit: int(arg[float64](args, "limit")),
		Newest: arg[bool](args, "newest"), Before: plantstore.Cursor(arg[string](args, "before")),
		Details: arg[bool](args, "details"),
	}
}

func webhookArg(args map[string]any) plantstore.Webhook {
	return plantstore.Webhook{URL: arg[string](args, "url"), Types: typesArg(args), Description: arg[string](args, "description")}
}

func plantValue(p plantstore.Plant) map[string]any {
	v := map[string]any{"id": p.ID.String(), "name": p.Name}
	if tag, ok := p.Tag.Text(); ok {
		v["tag"] = tag
	}
	return v
}

func storedValue(p plantstore.StoredPlant, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	v := plantValue(p.Plant)
	v["version"], v["etag"] = p.Version.String(), p.ETag()
	for name, at := range map[string]time.Time{"created": p.CreatedAt(), "updated": p.Version.Updated()} {
		if !at.IsZero() {
			v[name] = at.Format(time.RFC3339Nano)
		}
	}
	return v, nil
}

// listedValue is storedValue if details were asked for, and otherwise plantValue.
func listedValue(q plantstore.Query, p plantstore.StoredPlant) any {
	if !q.Details {
		return plantValue(p.Plant)
	}
	v, _ := storedValue(p, nil)
	return v
}

func patchArg(args map[string]any) (p plantstore.PlantPatch) {
	patch := arg[map[string]any](args, "patch")
	if name, ok := patch["name"].(string); ok {
		p.Name = &name
	}
	if tag, ok := patch["tag"]; ok {
		p.Tag = new(plantstore.Tag)
		if text, ok := tag.(string); ok {
			*p.Tag = plantstore.NewTag(text)
		}
	}
	return p
}

func eventValue(e plantstore.Event) map[string]any {
	v := map[string]any{
		"cursor": e.Cursor, "time": e.Time.Format(time.RFC3339Nano), "type": e.Type, "by": e.By, "plant": plantValue(e.Plant),
	}
	if e.Version != (plantstore.Version{}) {
		v["version"] = e.Version.String()
	}
	return v
}

func webhookValue(w plantstore.Webhook) (v map[string]any) {
	if err := json.Unmarshal(wire.EncodeWebhook(w, ""), &v); err != nil {
		panic(err)
	}
	return v
}

func tokenValue(t plantstore.TokenInfo) map[string]any {
	v := map[string]any{"id": t.ID, "name": t.Name, "scopes": t.Scopes, "expires": nil}
	if !t.Expires.IsZero() {
		v["expires"] = t.Expires.UTC().Format(time.RFC3339)
	}
	if !t.Rate.IsZero() {
		v["rate"] = t.Rate.String()
	}
	return v
}

func newTokenArg(args map[string]any) (plantstore.NewToken, error) {
	n := plantstore.NewToken{Name: arg[string](args, "name"), Expires: timeArg(args, "expires")}
	n.DefaultExpiry = n.Expires.IsZero() && !arg[bool](args, "never")
	for _, s := range arg[[]any](args, "scopes") {
		n.Scopes = append(n.Scopes, plantstore.Scope(s.(string)))
	}
	if rate := arg[string](args, "rate"); rate != "" {
		return n, n.Rate.UnmarshalText([]byte(rate))
	}
	return n, nil
}

func deliveryValue(d plantstore.Delivery) map[string]any {
	return map[string]any{"event": d.Event, "type": d.Type, "attempt": d.Attempt, "status": d.Status, "error": d.Error, "response": d.Response}
}

func reportValue(r plantstore.ImportReport) map[string]any {
	lines := []any{}
	for _, e := range r.Errors {
		lines = append(lines, map[string]any{"line": e.Line, "code": e.Err.Code})
	}
	return map[string]any{
		"created": r.Created, "replaced": r.Replaced, "deleted": r.Deleted,
		"unchanged": r.Unchanged, "failed": r.Failed, "errors": lines,
	}
}

// each returns the values of the elements of a list.
func each[T any](list []T, value func(T) map[string]any) []any {
	values := []any{}
	for _, v := range list {
		values = append(values, value(v))
	}
	return values
}

// linesArg returns the lines of an import: given, or so many of them.
func linesArg(args map[string]any) string {
	if n := int(arg[float64](args, "count")); n > 0 {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, `{"id":%d,"name":"Imported plant"}`+"\n", i)
		}
		return b.String()
	}
	return arg[string](args, "lines")
}

// invoke makes one call.
func invoke(c *goclient.Client, op string, args map[string]any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	id := idArg(args, "id")
	webhook := arg[string](args, "webhook")
	switch op {
	case "create":
		return nil, c.Create(ctx, plantArg(args["plant"]))
	case "get":
		if arg[bool](args, "details") {
			return storedValue(c.GetDetails(ctx, *id))
		}
		return storedValue(c.Get(ctx, *id))
	case "put":
		return nil, c.Replace(ctx, plantArg(args["plant"]), conditionArg(args))
	case "patch":
		return storedValue(c.Patch(ctx, *id, patchArg(args), conditionArg(args)))
	case "delete":
		return nil, c.Delete(ctx, *id, conditionArg(args))
	case "page":
		page, err := c.Page(ctx, queryArg(args))
		plants := []any{}
		for _, p := range page.Plants {
			plants = append(plants, listedValue(queryArg(args), p))
		}
		v := map[string]any{"plants": plants, "next": nil, "count": nil}
		if page.Next != nil {
			v["next"] = page.Next.String()
		}
		if page.Count != nil {
			v["count"] = map[string]any{"plants": page.Count.Plants, "more": page.Count.More}
		}
		return v, err
	case "list":
		values := []any{}
		for p, err := range c.List(ctx, queryArg(args)) {
			if err != nil {
				return values, err
			}
			values = append(values, listedValue(queryArg(args), p))
		}
		return values, nil
	case "export":
		var at plantstore.Cursor
		values := []any{}
		for p, err := range c.ExportAt(ctx, queryArg(args), &at) {
			if err != nil {
				return values, err
			}
			values = append(values, listedValue(queryArg(args), p))
		}
		return map[string]any{"plants": values, "cursor": at}, nil
	case "import":
		lines := func(yield func(goclient.ImportLine) bool) {
			for _, v := range arg[[]any](args, "plants") {
				if !yield(goclient.ImportLine{Plant: plantArg(v), IfVersion: arg[string](v.(map[string]any), "ifVersion")}) {
					return
				}
			}
		}
		report, err := c.ImportPlants(ctx, lines, goclient.ImportOptions{
			Mode: plantstore.ImportMode(arg[string](args, "mode")), DryRun: arg[bool](args, "dryRun"),
		})
		return reportValue(report), err
	case "importLines":
		var lines io.Reader = strings.NewReader(linesArg(args))
		if !arg[bool](args, "seekable") {
			lines = io.MultiReader(lines)
		}
		report, err := c.ImportFile(ctx, lines, goclient.ImportOptions{
			Media: arg[string](args, "media"), Mode: plantstore.ImportMode(arg[string](args, "mode")),
			DryRun: arg[bool](args, "dryRun"), Versions: arg[bool](args, "versions"),
		})
		return reportValue(report), err
	case "eventPage":
		page, err := c.EventPage(ctx, eventQueryArg(args))
		return map[string]any{"events": each(page.Events, eventValue), "cursor": page.Next, "more": page.More}, err
	case "histogram":
		buckets, err := c.Histogram(ctx, plantstore.HistogramQuery{
			Since: timeArg(args, "since"), Until: timeArg(args, "until"), Buckets: int(arg[float64](args, "buckets")),
		})
		return each(buckets, func(b plantstore.Bucket) map[string]any {
			return map[string]any{"time": b.Time.Format(time.RFC3339Nano), "events": b.Events, "partial": b.Partial}
		}), err
	case "events":
		take := int(arg[float64](args, "take"))
		values := []any{}
		for e, err := range c.Events(ctx, eventQueryArg(args)) {
			if err != nil {
				return values, err
			}
			if values = append(values, eventValue(e)); len(values) == take {
				break
			}
		}
		return values, nil
	case "createWebhook":
		w, secret, err := c.CreateWebhook(ctx, webhookArg(args), plantstore.Cursor(arg[string](args, "after")))
		v := webhookValue(w)
		v["secret"] = secret
		return v, err
	case "rotateWebhook":
		w, secret, err := c.RotateWebhook(ctx, webhook)
		v := webhookValue(w)
		v["secret"] = secret
		return v, err
	case "webhooks":
		all, err := c.Webhooks(ctx)
		return each(all, webhookValue), err
	case "webhook":
		w, err := c.Webhook(ctx, webhook)
		return webhookValue(w), err
	case "replaceWebhook":
		w, err := c.ReplaceWebhook(ctx, webhook, webhookArg(args))
		return webhookValue(w), err
	case "deleteWebhook":
		return nil, c.DeleteWebhook(ctx, webhook)
	case "testWebhook":
		d, err := c.TestWebhook(ctx, webhook)
		return deliveryValue(d), err
	case "pauseWebhook":
		w, err := c.PauseWebhook(ctx, webhook)
		return webhookValue(w), err
	case "retryWebhook":
		w, err := c.RetryWebhook(ctx, webhook)
		return webhookValue(w), err
	case "resumeWebhook":
		w, err := c.ResumeWebhook(ctx, webhook)
		return webhookValue(w), err
	case "replayWebhook":
		w, err := c.ReplayWebhook(ctx, webhook, plantstore.Cursor(arg[string](args, "after")), timeArg(args, "since"))
		return webhookValue(w), err
	case "deliveries":
		all, err := c.Deliveries(ctx, webhook)
		return each(all, deliveryValue), err
	case "about":
		a, err := c.About(ctx)
		return json.RawMessage(wire.EncodeAbout(a)), err
	case "token":
		t, err := c.Token(ctx)
		return tokenValue(t), err
	case "createToken":
		asked, err := newTokenArg(args)
		if err != nil {
			return nil, err
		}
		t, secret, err := c.CreateToken(ctx, asked)
		v := tokenValue(t)
		v["token"] = secret
		return v, err
	case "tokens":
		all, err := c.Tokens(ctx)
		return each(all, tokenValue), err
	case "getToken":
		t, err := c.GetToken(ctx, arg[string](args, "token"))
		return tokenValue(t), err
	case "revokeToken":
		return nil, c.RevokeToken(ctx, arg[string](args, "token"))
	case "tags":
		values := []any{}
		query := plantstore.TagQuery{Prefix: arg[string](args, "prefix"), Contains: arg[string](args, "q"), Limit: int(arg[float64](args, "limit"))}
		for t, err := range c.Tags(ctx, query) {
			if err != nil {
				return values, err
			}
			values = append(values, map[string]any{"tag": t.Tag, "plants": t.Plants, "more": t.More})
		}
		return values, nil
	case "verifyWebhook":
		header := http.Header{}
		for name, value := range arg[map[string]any](args, "headers") {
			header.Set(name, value.(string))
		}
		return nil, goclient.VerifyWebhook(header, []byte(arg[string](args, "body")), arg[string](args, "secret"))
	}
	return nil, fmt.Errorf("the operation %q is unknown", op)
}
