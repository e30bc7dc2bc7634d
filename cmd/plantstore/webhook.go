package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/webhook"
	"plantstore/internal/wire"
)

type webhookCommand struct {
	Create webhookCreate `cmd:"" help:"Create a webhook and print its secret once."`
	List   webhookList   `cmd:"" help:"List the webhooks."`
	Show   webhookShow   `cmd:"" help:"Show a webhook, or its last deliveries."`
	Rotate webhookRotate `cmd:"" help:"Give a webhook a new secret and print it once."`
	Test   webhookTest   `cmd:"" help:"Send a test to a webhook now."`
	Replay webhookReplay `cmd:"" help:"Send events to a webhook again."`
	Retry  webhookRetry  `cmd:"" help:"Send undelivered events to a webhook now."`
	Pause  webhookPause  `cmd:"" help:"Pause a webhook until it is resumed."`
	Resume webhookResume `cmd:"" help:"Resume a disabled or paused webhook."`
	Delete webhookDelete `cmd:"" help:"Delete a webhook."`
	Listen webhookListen `cmd:"" help:"Forward signed events to a program on this machine."`
}

const (
	webhookReadHelp  = "The token needs the scope webhooks:read. " + tokenHelp
	webhookWriteHelp = "The token needs the scope webhooks:write. " + tokenHelp
	webhookSendHelp  = "The token needs the scopes webhooks:write and events:read. " + tokenHelp
)

// webhookTarget says which webhook a command is about.
type webhookTarget struct {
	clientFlags
	ID string `arg:"" name:"id" placeholder:"ID" help:"The webhook's id: see plantstore webhook list."`
	outputFlags
}

// run calls the server for the webhook, and prints what has become of it.
func (t *webhookTarget) run(ctx context.Context, std streams, call func(context.Context, string) (plantstore.Webhook, error)) error {
	hook, err := call(ctx, t.ID)
	if err != nil {
		return err
	}
	return t.printWebhook(std.out, hook, "")
}

type webhookCreate struct {
	clientFlags
	Target      string                 `arg:"" name:"target" placeholder:"URL" help:"Where to send events, such as https://example.com/hook."`
	Type        []plantstore.EventType `placeholder:"TYPE" help:"Send only events of these types: plant.created, plant.replaced, plant.deleted."`
	Description string                 `placeholder:"TEXT" help:"The purpose of the webhook."`
	After       string                 `placeholder:"CURSOR" help:"Start after this cursor instead of with the next event."`
	outputFlags
}

func (webhookCreate) Help() string {
	return `Prints the webhook with its secret, which is not shown again: as text on a terminal, and as JSON elsewhere. The receiver needs the secret to verify messages. ` + webhookSendHelp + `

Examples:
  plantstore webhook create https://example.com/hook
  plantstore webhook create https://example.com/hook --type plant.deleted | jq -r .secret`
}

func (c *webhookCreate) Run(ctx context.Context, api *client.Client, std streams) error {
	config := plantstore.Webhook{URL: c.Target, Types: c.Type, Description: c.Description}
	hook, secret, err := api.CreateWebhook(ctx, config, plantstore.Cursor(c.After))
	if err != nil {
		return err
	}
	return c.printWebhook(std.out, hook, secret)
}

type webhookList struct {
	clientFlags
	outputFlags
}

func (webhookList) Help() string {
	return `On a terminal, HEALTH is one of:

  healthy      events arrive
  catching up  events arrive, but the oldest undelivered one is older than 10s
  failing      the last attempt failed; shown with the time since when
  paused       see plantstore webhook pause
  disabled     plantstore webhook show says why

PENDING is the number of undelivered events of its types, counted up to 1,000, LAG the age of the oldest of them, NEXT ATTEMPT the time at which an event that failed is sent again, and LAST ERROR the reason for the last failure, even if events have arrived since. ` + webhookReadHelp
}

func (c *webhookList) Run(ctx context.Context, api *client.Client, std streams) error {
	hooks, err := api.Webhooks(ctx)
	if err != nil {
		return err
	}
	return c.print(std.out, wire.EncodeWebhooks(hooks), func(table io.Writer) { writeWebhooks(table, hooks) })
}

func writeWebhooks(table io.Writer, hooks []plantstore.Webhook) {
	fmt.Fprintln(table, "ID\tHEALTH\tPENDING\tLAG\tNEXT ATTEMPT\tURL\tTYPES\tBY\tDESCRIPTION\tLAST ERROR")
	for _, w := range hooks {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(w.ID), healthText(w.Health), pendingText(w.Health), lagText(w.Health),
			nextAttemptText(w.Health), printable(w.URL), formatTypes(w.Types), printable(w.By), printable(w.Description), lastErrorText(w))
	}
}

type webhookShow struct {
	webhookTarget
	Deliveries bool `help:"Show the last delivery attempts, the newest first."`
}

func (webhookShow) Help() string { return webhookReadHelp }

func (c *webhookShow) Run(ctx context.Context, api *client.Client, std streams) error {
	if c.Deliveries {
		attempts, err := api.Deliveries(ctx, c.ID)
		if err != nil {
			return err
		}
		return c.print(std.out, wire.EncodeDeliveries(attempts), func(table io.Writer) { writeDeliveries(table, attempts...) })
	}
	return c.run(ctx, std, api.Webhook)
}

type webhookRotate struct{ webhookTarget }

func (webhookRotate) Help() string {
	return `For 24 hours both the old and the new secret sign messages: give the new one to the receiver in that time. ` + webhookWriteHelp
}

func (c *webhookRotate) Run(ctx context.Context, api *client.Client, std streams) error {
	hook, secret, err := api.RotateWebhook(ctx, c.ID)
	if err != nil {
		return err
	}
	return c.printWebhook(std.out, hook, secret)
}

type webhookTest struct{ webhookTarget }

func (webhookTest) Help() string {
	return `Sends a webhook.test and prints the result. Exits with 1 if it was not delivered. ` + webhookSendHelp
}

func (c *webhookTest) Run(ctx context.Context, api *client.Client, std streams) error {
	attempt, err := api.TestWebhook(ctx, c.ID)
	if err != nil {
		return err
	}
	err = c.print(std.out, wire.EncodeDelivery(attempt), func(table io.Writer) { writeDeliveries(table, attempt) })
	if err == nil && attempt.Status/100 != 2 {
		return fmt.Errorf("the test was not delivered: %s", cmp.Or(attempt.Error, "the status of the response is "+statusText(attempt.Status)))
	}
	return err
}

type webhookReplay struct {
	webhookTarget
	After string    `xor:"start" required:"" placeholder:"CURSOR" help:"Send the events after this cursor; latest skips all."`
	Since time.Time `xor:"start" required:"" placeholder:"TIME" help:"Send the events from this time on, such as 2026-01-31T12:00:00Z."`
}

func (webhookReplay) Help() string {
	return `Moves the position of a webhook, as far back as the log of changes goes. Events are sent again even if they were delivered before. ` + webhookSendHelp + `

Example:
  plantstore webhook replay wh_0123456789abcdef0123 --since 2026-01-31T12:00:00Z`
}

func (c *webhookReplay) Run(ctx context.Context, api *client.Client, std streams) error {
	hook, err := api.ReplayWebhook(ctx, c.ID, plantstore.Cursor(c.After), c.Since)
	if err != nil {
		return err
	}
	return c.printWebhook(std.out, hook, "")
}

type webhookRetry struct{ webhookTarget }

func (webhookRetry) Help() string {
	return `Sends undelivered events now, without waiting until the next attempt is due. A disabled or paused webhook must be resumed instead. ` + webhookSendHelp
}

func (c *webhookRetry) Run(ctx context.Context, api *client.Client, std streams) error {
	return c.run(ctx, std, api.RetryWebhook)
}

type webhookPause struct{ webhookTarget }

func (webhookPause) Help() string {
	return `Nothing is sent until plantstore webhook resume, which continues from where the webhook stopped. Events wait in the log of changes, for as long as the server keeps them. ` + webhookSendHelp
}

func (c *webhookPause) Run(ctx context.Context, api *client.Client, std streams) error {
	return c.run(ctx, std, api.PauseWebhook)
}

type webhookResume struct{ webhookTarget }

func (webhookResume) Help() string {
	return `A disabled or paused webhook continues from where it stopped. ` + webhookSendHelp
}

func (c *webhookResume) Run(ctx context.Context, api *client.Client, std streams) error {
	return c.run(ctx, std, api.ResumeWebhook)
}

type webhookDelete struct {
	clientFlags
	ID string `arg:"" name:"id" placeholder:"ID" help:"The webhook's id: see plantstore webhook list."`
}

func (webhookDelete) Help() string { return webhookWriteHelp }

func (c *webhookDelete) Run(ctx context.Context, api *client.Client, std streams) error {
	if err := api.DeleteWebhook(ctx, c.ID); err != nil {
		return err
	}
	std.say("Webhook " + printable(c.ID) + " is deleted.")
	return nil
}

// printWebhook prints a webhook, and its secret if that is not empty.
func (f outputFlags) printWebhook(out io.Writer, w plantstore.Webhook, secret string) error {
	return f.print(out, wire.EncodeWebhook(w, secret), func(table io.Writer) { writeWebhook(table, w, secret) })
}

func writeWebhook(table io.Writer, w plantstore.Webhook, secret string) {
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, text)
		}
	}
	row("id", printable(w.ID))
	row("url", printable(w.URL))
	row("types", formatTypes(w.Types))
	row("description", printable(w.Description))
	row("health", healthText(w.Health))
	if w.Health.State == plantstore.WebhookDisabled {
		row("reason", printable(w.Disabled))
	}
	if f := w.Health.Failing; f != nil {
		row("attempts", strconv.Itoa(f.Attempts))
	}
	row("next attempt", nextAttemptText(w.Health))
	row("last error", lastErrorText(w))
	row("delivered", when(w.Health.Delivered))
	row("pending", pendingText(w.Health))
	row("lag", lagText(w.Health))
	row("created", when(w.Created))
	row("by", printable(w.By))
	if secret != "" {
		row("secret", secret+" (not shown again)")
	}
}

func writeDeliveries(table io.Writer, attempts ...plantstore.Delivery) {
	fmt.Fprintln(table, "TIME\tTYPE\tATTEMPT\tSTATUS\tTOOK\tEVENT\tERROR")
	for _, d := range attempts {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", d.Time.Local().Format(time.DateTime), printable(string(d.Type)), d.Attempt,
			statusText(d.Status), d.Duration, printable(string(d.Event)), printable(d.Error))
	}
}

func healthText(h plantstore.WebhookHealth) string {
	if h.State == plantstore.WebhookFailing && h.Failing != nil {
		return "failing since " + when(h.Failing.Since)
	}
	return printable(strings.ReplaceAll(string(h.State), "_", " "))
}

// nextAttemptText returns when an event that has failed is sent again, or "" if none is.
func nextAttemptText(h plantstore.WebhookHealth) string {
	switch {
	case h.NextAttempt.IsZero():
		return ""
	case h.NextAttempt.Before(time.Now()):
		return "now"
	}
	return h.NextAttempt.UTC().Format(time.DateTime)
}

// lastErrorText returns why an attempt last failed, and when and where unless it was at the
// present URL and a server of release 0.2.0 has stored it.
func lastErrorText(w plantstore.Webhook) string {
	switch e := w.Health.LastError; {
	case e != nil && e.URL != w.URL:
		return fmt.Sprintf("%s at %s: %s", e.Time.UTC().Format(time.DateTime), printable(e.URL), printable(e.Error))
	case e != nil:
		return fmt.Sprintf("%s: %s", e.Time.UTC().Format(time.DateTime), printable(e.Error))
	case w.Health.Failing != nil:
		return printable(w.Health.Failing.Error)
	}
	return ""
}

// pendingText returns how many events were not delivered, which are counted up to a limit.
func pendingText(h plantstore.WebhookHealth) string {
	if h.Pending == plantstore.MaxPending {
		return "1,000+"
	}
	return strconv.Itoa(h.Pending)
}

// lagText returns the age of the oldest event that was not delivered, to the second.
func lagText(h plantstore.WebhookHealth) string { return h.Lag.Round(time.Second).String() }

func statusText(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status)
}

func formatTypes(types []plantstore.EventType) string {
	var all []string
	for _, t := range types {
		all = append(all, printable(string(t)))
	}
	return strings.Join(all, ",")
}

// webhookSecretEnv is the secret that listen signs with.
const webhookSecretEnv = "PLANTSTORE_WEBHOOK_SECRET"

type webhookListen struct {
	clientFlags
	Forward *url.URL               `required:"" placeholder:"URL" help:"Where to send the events, such as http://127.0.0.1:3000/hook."`
	Type    []plantstore.EventType `placeholder:"TYPE" help:"Forward only events of these types: plant.created, plant.replaced, plant.deleted."`
	All     bool                   `help:"Start with the oldest event kept instead of the next one."`
}

func (webhookListen) Help() string {
	return `Forwards events to a program on your machine until interrupted, signed as a webhook signs them. It needs neither a public address nor a webhook on the server: it follows the events itself. An event that is not answered with a 2xx status is sent again until it is, and later events wait.

The secret is the value of the environment variable ` + webhookSecretEnv + `, or a new one, which is printed. The token needs the scope events:read. ` + tokenHelp + `

Example:
  plantstore webhook listen --forward http://127.0.0.1:3000/hook --type plant.created`
}

// Run forwards events until ctx ends.
func (c *webhookListen) Run(ctx context.Context, std streams) error {
	if u := c.Forward; u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return usage("--forward must look like http://127.0.0.1:3000/hook, got %q", u.Redacted())
	}
	given := os.Getenv(webhookSecretEnv)
	secret := cmp.Or(given, plantstore.NewWebhookSecret())
	if _, err := plantstore.SignWebhook(secret, "", time.Time{}, nil); err != nil {
		return usage("%s must be whsec_ and base64", webhookSecretEnv)
	}
	api, err := c.client(std, fileTimeout)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "Forwarding events to %s\n", c.Forward.Redacted())
	if given == "" {
		fmt.Fprintf(std.out, "Secret: %s\n", secret)
	}
	query := plantstore.EventQuery{Types: c.Type, After: plantstore.LatestCursor}
	if c.All {
		query.After = ""
	}
	forwarder := webhook.Forwarder{URL: c.Forward.String(), Secret: secret, Report: func(e plantstore.Event, attempt plantstore.Delivery, wait time.Duration) error {
		return printAttempt(std.out, e, attempt, wait)
	}}
	err = forwarder.Forward(ctx, api.Events(ctx, query))
	if ctx.Err() != nil {
		return nil // the user ended it
	}
	return err
}

// printAttempt prints a line about an attempt to forward an event. Unless it was accepted, there
// is another after the wait.
func printAttempt(out io.Writer, e plantstore.Event, attempt plantstore.Delivery, wait time.Duration) error {
	status := "no response"
	if attempt.Status != 0 {
		status = strconv.Itoa(attempt.Status)
	}
	result := "in " + attempt.Duration.Round(time.Millisecond).String()
	if wait > 0 {
		status += ":"
		result = fmt.Sprintf("%s; trying again in %s", printable(cmp.Or(attempt.Error, "not accepted")), wait.Round(100*time.Millisecond))
	}
	_, err := fmt.Fprintf(out, "%s  %-14s  %d  %s %s\n", attempt.Time.Local().Format(time.TimeOnly), printable(string(e.Type)), e.Plant.ID, status, result)
	return err
}
