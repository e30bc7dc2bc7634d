// Command pocketbase runs PocketBase with a collection of plants and one user, and
// prints the user's token.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/core"
	"github.com/pocketbase/pocketbase/tools/types"
)

func main() {
	dir := flag.String("dir", "pb_data", "the data directory")
	full := flag.Bool("full", false, "sync at every commit, as Plantstore does, instead of PocketBase's default")
	flag.Parse()
	config := pocketbase.Config{DefaultDataDir: *dir, HideStartBanner: true}
	if *full {
		config.DBConnect = connectFull
	}
	app := pocketbase.NewWithConfig(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		token, err := prepare(e.App)
		if err != nil {
			return err
		}
		e.Listener = listener
		fmt.Printf("{\"addr\":%q,\"token\":%q}\n", listener.Addr(), token)
		return e.Next()
	})
	// PocketBase parses the arguments of the process itself.
	os.Args = []string{os.Args[0], "serve", "--http", listener.Addr().String()}
	if err := app.Start(); err != nil {
		log.Fatal(err)
	}
}

// connectFull connects as PocketBase does, except for synchronous.
func connectFull(path string) (*dbx.DB, error) {
	pragmas := []string{
		"busy_timeout(10000)", "journal_mode(WAL)", "journal_size_limit(200000000)", "synchronous(FULL)",
		"foreign_keys(ON)", "temp_store(MEMORY)", "cache_size(-32000)",
	}
	return dbx.Open("sqlite", path+"?_pragma="+strings.Join(pragmas, "&_pragma="))
}

// prepare creates the collection and the user unless they exist, and returns a token
// of the user.
func prepare(app core.App) (string, error) {
	if _, err := app.FindCollectionByNameOrId("plants"); err != nil {
		plants := core.NewBaseCollection("plants")
		id := plants.Fields.GetByName("id").(*core.TextField)
		id.Pattern, id.Min, id.Max, id.AutogeneratePattern = `^-?[0-9]+$`, 1, 20, ""
		plants.Fields.Add(&core.TextField{Name: "name", Required: true}, &core.TextField{Name: "tag"})
		rule := types.Pointer("@request.auth.id != ''")
		plants.CreateRule, plants.ViewRule, plants.ListRule = rule, rule, rule
		if err := app.Save(plants); err != nil {
			return "", fmt.Errorf("create the collection: %w", err)
		}
	}
	const email = "bench@example.com"
	user, err := app.FindAuthRecordByEmail("users", email)
	if err != nil {
		users, err := app.FindCollectionByNameOrId("users")
		if err != nil {
			return "", err
		}
		user = core.NewRecord(users)
		user.SetEmail(email)
		user.SetPassword("not a real password")
		user.SetVerified(true)
		if err := app.Save(user); err != nil {
			return "", fmt.Errorf("create the user: %w", err)
		}
	}
	return user.NewStaticAuthToken(24 * time.Hour)
}
