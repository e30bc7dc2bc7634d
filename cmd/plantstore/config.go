package main

import (
	"slices"

	"github.com/alecthomas/kong"

	"plantstore/internal/cli"
)

// BeforeResolve reads the configuration file, if there is one. Commands that open the store
// read --db from it.
func (commands) BeforeResolve(line *kong.Context) error {
	file := cli.FlagNamed(line.Selected(), "--config")
	if file == nil {
		return nil
	}
	settings, err := cli.ReadSettings(line.FlagValue(file).(string), settingsOf(line.Model.Node))
	if err != nil {
		return usage("%w", err)
	}
	line.AddResolver(kong.ResolverFunc(settings.Resolve))
	return nil
}

// AfterApply lets --db override whatever else names a server, and --url whatever else names a store.
func (commands) AfterApply(line *kong.Context) error {
	store, server := cli.FlagNamed(line.Selected(), "--db"), cli.FlagNamed(line.Selected(), "--url")
	if store == nil || server == nil {
		return nil
	}
	typed := func(flag *kong.Flag) bool {
		return slices.ContainsFunc(line.Path, func(p *kong.Path) bool { return p.Flag == flag && !p.Resolved })
	}
	switch {
	case typed(store) && typed(server):
		return usage("--url names a server and --db a store: use only one of them")
	case typed(store):
		server.Target.SetZero()
	case typed(server):
		store.Target.SetZero()
	}
	return nil
}

// settingsOf returns the flags of serve that a configuration file can set, in the order
// of the help page.
func settingsOf(app *kong.Node) []*kong.Flag {
	serve := app.Children[slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == "serve" })]
	return slices.DeleteFunc(slices.Clone(serve.Flags), func(f *kong.Flag) bool {
		return f.Name == "config" || f.Name == "print-config"
	})
}

// flaglessVariables are secrets, which have no flag.
var flaglessVariables = []string{tokenEnv, fromTokenEnv, toTokenEnv, bootstrapEnv, webhookSecretEnv}
