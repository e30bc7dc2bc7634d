package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/testenv"
)

// completions says what each line must be completed to. A * stands for the files.
var completions = map[string][]string{
	"plantstore ser":                              {"serve"},
	"plantstore token ":                           {"create", "list", "revoke", "show"},
	"plantstore serve --log-l":                    {"--log-level"},
	"plantstore serve --log-level ":               {"debug", "error", "info", "warn"},
	"plantstore serve --log-level=w":              {"warn"},
	"plantstore serve --db x --log-level e":       {"error"},
	"plantstore export --format ":                 {"csv", "json", "ndjson"},
	"plantstore export --format=nd":               {"ndjson"},
	"plantstore token create --scopes ev":         {"events:read"},
	"plantstore token create --scopes plants:w":   {"plants:write"},
	"plantstore token create --scopes=plants:r":   {"plants:read"},
	"plantstore token create --scopes ops:read,e": {"events:read"},
	"plantstore ta":                               {"tags"},
	"plantstore und":                              {"undelete"},
	"plantstore revert 1 --":                      {"--help", "--json", "--to", "--url"},
	"plantstore tags --p":                         {"--prefix"},
	"plantstore completion ":                      {"bash", "fish", "zsh"},
	"plantstore import ":                          {"*"},
	"plantstore import --errors ":                 {"*"},
	"plantstore import --errors=f":                {"*"},
	"plantstore serve --config ":                  {"*"},
	"plantstore get ":                             nil,
	"plantstore complet":                          {"completion"},
}

// The scripts show what would be completed, each on a line of its own. For bash and zsh
// they stand in for the line editor; fish has a command for it.
var completionHarness = map[string]string{
	"bash": `source <(plantstore completion bash)
compopt() { echo '*'; }
COMP_LINE=$1 COMP_POINT=${#1}
_plantstore
(( ${#COMPREPLY[@]} )) && printf '%s\n' "${COMPREPLY[@]}"
exit 0`,
	"zsh": `compdef() { :; }
source <(plantstore completion zsh)
compset() { :; }
_files() { print '*'; }
compadd() { shift; print -l -- "$@"; }
words=("${(@s: :)1}") CURRENT=${#words}
_plantstore
exit 0`,
	"fish": `plantstore completion fish | source
function __fish_complete_path; echo $argv[1]'*'; end
complete -C $argv[1] | string replace -r '\t.*' ''
exit 0`,
}

func TestShellsComplete(t *testing.T) {
	for shell, script := range completionHarness {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			program := testenv.NeedsProgram(t, shell)
			file := filepath.Join(t.TempDir(), "complete")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			for line, want := range completions {
				cmd := exec.CommandContext(t.Context(), program, file, line)
				cmd.Dir = t.TempDir()
				cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "GORACE=atexit_sleep_ms=0")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", line, err, out)
				}
				got := strings.Fields(string(out))
				for i, word := range got {
					// bash completes only what follows the last : or =. The others repeat what
					// comes before it.
					if got[i] = afterBreak(shell, word); strings.HasSuffix(word, "*") {
						got[i] = "*"
					}
				}
				var wanted []string
				for _, word := range want {
					wanted = append(wanted, afterBreak(shell, inLine(shell, line, word)))
				}
				slices.Sort(got)
				slices.Sort(wanted)
				if !slices.Equal(got, wanted) {
					t.Errorf("%s: got %q, want %q", line, got, wanted)
				}
			}
		})
	}
}

// inLine returns a completion with what bash would cut off.
func inLine(shell, line, word string) string {
	last := line[strings.LastIndexByte(line, ' ')+1:]
	if at := strings.LastIndexByte(last, ','); at >= 0 {
		word = last[:at+1] + word
	}
	if shell == "bash" {
		done := last[:strings.LastIndexAny(last, ":=")+1]
		return word[max(0, commonSuffix(done, word)):]
	}
	return word
}

// commonSuffix returns how much of the word repeats the end of what has been typed.
func commonSuffix(done, word string) int {
	for n := min(len(done), len(word)); n > 0; n-- {
		if strings.HasSuffix(done, word[:n]) {
			return n
		}
	}
	return 0
}

// afterBreak drops the name of a flag that comes before its value.
func afterBreak(shell, word string) string {
	if shell != "bash" && strings.HasPrefix(word, "--") {
		if _, value, ok := strings.Cut(word, "="); ok {
			return value
		}
	}
	return word
}
