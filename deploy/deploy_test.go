// Package deploy_test checks the deployment files against the binary: they may use
// only options and paths that exist.
package deploy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"plantstore"
	"plantstore/internal/testenv"
)

// binary is the plantstore that the files deploy, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "plantstore-deploy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = testenv.Binary("..", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

type labels map[string]string

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

type container struct {
	Args []string
	Env  []struct {
		Name      string
		Value     string
		ValueFrom struct {
			Secret struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Resources struct {
		Limits struct{ Memory string }
	}
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Mounts    []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// env returns the value of a variable, "" if there is none or it is in a Secret.
func (c container) env(name string) string {
	for _, env := range c.Env {
		if env.Name == name {
			return env.Value
		}
	}
	return ""
}

// pods are the files that run servers in Kubernetes.
var pods = []string{"kubernetes/deployment.yaml", "kubernetes-sqlite/statefulset.yaml"}

// workload is a Deployment or a StatefulSet.
type workload struct {
	Spec struct {
		Replicas int
		Selector selector
		Claims   []struct {
			Metadata struct{ Name string }
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
			}
		} `yaml:"volumeClaimTemplates"`
		Template struct {
			Metadata struct{ Labels labels }
			Spec     struct {
				Grace  int `yaml:"terminationGracePeriodSeconds"`
				Spread []struct {
					Selector selector `yaml:"labelSelector"`
				} `yaml:"topologySpreadConstraints"`
				Containers []container
			}
		}
	}
}

type secret struct {
	Metadata   struct{ Name string }
	StringData map[string]string `yaml:"stringData"`
}

type compose struct {
	Networks map[string]struct {
		IPAM struct{ Config []struct{ Subnet string } }
	}
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		StopGrace   time.Duration `yaml:"stop_grace_period"`
		Memory      string        `yaml:"mem_limit"`
		CapDrop     []string      `yaml:"cap_drop"`
		CapAdd      []string      `yaml:"cap_add"`
		Security    []string      `yaml:"security_opt"`
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readYAML[T any](t *testing.T, file string) (doc T) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return doc
}

// find returns what the pattern's group matches in the file.
func find(t *testing.T, file, pattern string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		found = append(found, m[1])
	}
	if found == nil {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return found
}

// commandLine is how a file starts the binary, and how long it allows for a shutdown.
type commandLine struct {
	file  string
	args  []string
	grace time.Duration
}

func commandLines(t *testing.T) []commandLine {
	t.Helper()
	service := readYAML[compose](t, "compose.yaml").Services["plantstore"]
	unit := "plantstore.service"
	stop, err := time.ParseDuration(find(t, unit, `(?m)^TimeoutStopSec=(\d+)$`)[0] + "s")
	if err != nil {
		t.Fatal(err)
	}
	lines := []commandLine{
		{"compose.yaml", service.Command, service.StopGrace},
		{unit, strings.Fields(find(t, unit, `(?m)^ExecStart=\S+/plantstore (.*)$`)[0]), stop},
	}
	for _, file := range pods {
		pod := readYAML[workload](t, file).Spec.Template.Spec
		lines = append(lines, commandLine{file, pod.Containers[0].Args, time.Duration(pod.Grace) * time.Second})
	}
	return lines
}

func TestEnvironmentIsWhatServeReads(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), binary, "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`PLANTSTORE_[A-Z_]+`)
	known := variable.FindAllString(string(help), -1)
	for _, file := range append([]string{"Dockerfile", "compose.yaml", "env.example", "plantstore.service"}, pods...) {
		// Comments may name variables that must not be set.
		text := regexp.MustCompile(`(?m)#.*$`).ReplaceAllString(read(t, file), "")
		named := variable.FindAllString(text, -1)
		if named == nil {
			t.Errorf("%s sets nothing", file)
		}
		for _, name := range named {
			if !slices.Contains(known, name) {
				t.Errorf("%s sets %s, which serve does not read", file, name)
			}
		}
	}
}

// Each command line starts a server that responds to the probes and to the load
// balancer's health checks.
func TestCommandLinesServeWhatIsProbed(t *testing.T) {
	probed := []string{"/readyz", "/healthz"}
	for _, file := range pods {
		container := readYAML[workload](t, file).Spec.Template.Spec.Containers[0]
		if got := []string{container.Readiness.HTTPGet.Path, container.Liveness.HTTPGet.Path}; !slices.Equal(got, probed) {
			t.Errorf("%s: the readiness and liveness probes get %q, want %q", file, got, probed)
		}
	}
	probed = append(probed, find(t, "haproxy.cfg", `option httpchk GET (\S+)`)...)
	for _, line := range commandLines(t) {
		t.Run(line.file, func(t *testing.T) {
			addr := serve(t, line.args)
			for _, path := range probed {
				resp, err := http.Get("http://" + addr + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("GET %s: %s", path, resp.Status)
				}
			}
		})
	}
}

// serve runs the binary on a new store until the test ends, and returns its address.
func serve(t *testing.T, args []string) string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(),
		"PLANTSTORE_ADDR=127.0.0.1:0",
		"PLANTSTORE_DB="+filepath.Join(t.TempDir(), "plants.db"),
		"PLANTSTORE_BOOTSTRAP_TOKEN="+plantstore.NewSecret())
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// SIGTERM would make the test wait for --drain-delay.
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			return line.Addr
		}
		t.Log(lines.Text())
	}
	t.Fatalf("plantstore %q did not serve", args)
	return ""
}

func TestStoppingLeavesTimeToDrain(t *testing.T) {
	for _, line := range commandLines(t) {
		var need time.Duration
		for _, arg := range line.args {
			flag, value, _ := strings.Cut(arg, "=")
			if flag != "--drain-delay" && flag != "--shutdown-timeout" {
				continue
			}
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Errorf("%s: %s: %v", line.file, arg, err)
			}
			need += d
		}
		if need == 0 || line.grace < need+5*time.Second {
			t.Errorf("%s kills the server after %s, but it may need %s and a few seconds more", line.file, line.grace, need)
		}
	}
}

// bytes parses a size as the files write it.
func bytes(t *testing.T, size string) int64 {
	t.Helper()
	parts := regexp.MustCompile(`^(\d+)([KMGkmg])(?:i|iB)?$`).FindStringSubmatch(size)
	if parts == nil {
		t.Fatalf("%q is not a size", size)
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << map[string]int{"K": 10, "M": 20, "G": 30}[strings.ToUpper(parts[2])]
}

// The kernel kills a server at 512 MiB. Go's runtime must collect garbage before that.
func TestMemoryIsLimited(t *testing.T) {
	type limits struct{ hard, soft string }
	service := readYAML[compose](t, "compose.yaml").Services["plantstore"]
	files := map[string]limits{
		"compose.yaml":       {service.Memory, service.Environment["GOMEMLIMIT"]},
		"plantstore.service": {find(t, "plantstore.service", `(?m)^MemoryMax=(.*)$`)[0], find(t, "plantstore.service", `(?m)^Environment=GOMEMLIMIT=(.*)$`)[0]},
	}
	for _, file := range pods {
		container := readYAML[workload](t, file).Spec.Template.Spec.Containers[0]
		files[file] = limits{container.Resources.Limits.Memory, container.env("GOMEMLIMIT")}
	}
	for file, l := range files {
		hard, soft := bytes(t, l.hard), bytes(t, l.soft)
		if hard != 512<<20 || soft > hard*8/10 || soft < hard/2 {
			t.Errorf("%s limits the memory to %s and Go's part to %s", file, l.hard, l.soft)
		}
	}
}

func TestComposeServicesAreConfined(t *testing.T) {
	services := readYAML[compose](t, "compose.yaml").Services
	if len(services) != 3 {
		t.Errorf("compose.yaml has %d services", len(services))
	}
	for name, s := range services {
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || !slices.Contains(s.Security, "no-new-privileges:true") {
			t.Errorf("%s drops the capabilities %q, adds %q, and has the options %q", name, s.CapDrop, s.CapAdd, s.Security)
		}
		if bytes(t, s.Memory) > 1<<30 {
			t.Errorf("%s may use %s of memory", name, s.Memory)
		}
	}
}

// Otherwise all requests seem to come from the load balancer or the Ingress controller.
func TestServersTrustTheProxiesInFrontOfThem(t *testing.T) {
	c := readYAML[compose](t, "compose.yaml")
	trusted := c.Services["plantstore"].Environment["PLANTSTORE_TRUSTED_PROXIES"]
	if subnets := c.Networks["default"].IPAM.Config; len(subnets) != 1 || subnets[0].Subnet != trusted {
		t.Errorf("compose.yaml trusts %q, the load balancer is in %v", trusted, subnets)
	}
	all := []string{trusted}
	for _, file := range pods {
		all = append(all, readYAML[workload](t, file).Spec.Template.Spec.Containers[0].env("PLANTSTORE_TRUSTED_PROXIES"))
	}
	for _, trusted := range all {
		if network, err := netip.ParsePrefix(trusted); err != nil || !network.Addr().IsPrivate() {
			t.Errorf("%q is trusted, want a private network: %v", trusted, err)
		}
	}
}

// A tag such as postgres:17 is another image every few weeks.
func TestThirdPartyImagesArePinned(t *testing.T) {
	const rest = `(-[a-z]+)?(@sha256:[0-9a-f]{64})?$`
	exact := map[string]*regexp.Regexp{
		"golang":   regexp.MustCompile(`^golang:\d+\.\d+\.\d+` + rest),
		"haproxy":  regexp.MustCompile(`^haproxy:\d+\.\d+\.\d+` + rest),
		"postgres": regexp.MustCompile(`^postgres:\d+\.\d+` + rest), // its releases have two numbers
	}
	images := find(t, "Dockerfile", `(?m)^FROM (?:--\S+ )?(\S+:\S+)`)
	for _, s := range readYAML[compose](t, "compose.yaml").Services {
		if s.Image != "plantstore" {
			images = append(images, s.Image)
		}
	}
	for _, image := range images {
		name, _, _ := strings.Cut(image, ":")
		if exact[name] == nil || !exact[name].MatchString(image) {
			t.Errorf("%s is not an exact release", image)
		}
	}
	if len(images) != len(exact) {
		t.Errorf("the files use the images %q", images)
	}
}

func TestNetworkPolicyAllowsWhatThePodsNeed(t *testing.T) {
	type rule struct {
		From  []any
		Ports []struct{ Protocol, Port string }
	}
	policy := readYAML[struct {
		Spec struct {
			PolicyTypes     []string `yaml:"policyTypes"`
			Ingress, Egress []rule
		}
	}](t, "kubernetes/networkpolicy.yaml").Spec
	if !slices.Equal(policy.PolicyTypes, []string{"Ingress", "Egress"}) {
		t.Errorf("the policy is for %q", policy.PolicyTypes)
	}
	name := readYAML[workload](t, "kubernetes/deployment.yaml").Spec.Template.Spec.Containers[0].Ports[0].Name
	if len(policy.Ingress) != 1 || len(policy.Ingress[0].From) == 0 || len(policy.Ingress[0].Ports) != 1 || policy.Ingress[0].Ports[0].Port != name {
		t.Errorf("the policy allows the ingress %v, want only to port %s, from selected pods", policy.Ingress, name)
	}
	var out []string
	for _, r := range policy.Egress {
		for _, p := range r.Ports {
			out = append(out, p.Protocol+" "+p.Port)
		}
	}
	db := readYAML[secret](t, "kubernetes/secret.example.yaml").StringData["db"]
	port := regexp.MustCompile(`>:(\d+)/`).FindStringSubmatch(db)
	const https = "TCP 443" // webhooks and identity providers
	if port == nil || !slices.Equal(out, []string{"UDP 53", "TCP 53", "TCP " + port[1], https}) {
		t.Errorf("the policy allows connections to %q, the database is %s", out, db)
	}
}

func TestServiceMonitorScrapesTheService(t *testing.T) {
	monitor := readYAML[struct {
		Spec struct {
			Selector  selector
			Endpoints []struct {
				Port, Path    string
				Authorization struct {
					Credentials struct{ Name, Key string }
				}
			}
		}
	}](t, "kubernetes/servicemonitor.yaml").Spec
	service := readYAML[struct {
		Metadata struct{ Labels labels }
		Spec     struct{ Ports []struct{ Name string } }
	}](t, "kubernetes/service.yaml")
	for key, value := range monitor.Selector.MatchLabels {
		if service.Metadata.Labels[key] != value {
			t.Errorf("the monitor selects %s=%s, which the service does not have", key, value)
		}
	}
	if len(monitor.Selector.MatchLabels) == 0 || len(monitor.Endpoints) != 1 {
		t.Fatalf("the monitor is %+v", monitor)
	}
	if e := monitor.Endpoints[0]; e.Port != service.Spec.Ports[0].Name || e.Path != "/metrics" || e.Authorization.Credentials.Key != "token" {
		t.Errorf("the endpoint is %+v", e)
	}
}

func TestImageChecksItsHealth(t *testing.T) {
	for _, check := range find(t, "Dockerfile", `HEALTHCHECK .*CMD (\[.*\])`) {
		var args []string
		if err := json.Unmarshal([]byte(check), &args); err != nil || len(args) != 2 || args[0] != "/plantstore" {
			t.Fatalf("the health check is %s, %v", check, err)
		}
		if out, err := exec.CommandContext(t.Context(), binary, args[1], "--help").CombinedOutput(); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	}
}

func TestFilesAgreeOnThePort(t *testing.T) {
	want := find(t, "Dockerfile", `PLANTSTORE_ADDR=:(\d+)`)[0]
	service := readYAML[struct {
		Spec struct {
			Ports []struct {
				TargetPort string `yaml:"targetPort"`
			}
		}
	}](t, "kubernetes/service.yaml")
	got := map[string]string{
		"Dockerfile's EXPOSE":  find(t, "Dockerfile", `EXPOSE (\d+)`)[0],
		"haproxy.cfg's server": find(t, "haproxy.cfg", `plantstore:(\d+)`)[0],
		"haproxy.cfg's bind":   find(t, "haproxy.cfg", `bind :(\d+)`)[0],
		"compose.yaml":         find(t, "compose.yaml", `"127\.0\.0\.1:8080:(\d+)"`)[0],
	}
	for _, file := range pods {
		container := readYAML[workload](t, file).Spec.Template.Spec.Containers[0]
		got[file] = fmt.Sprint(container.Ports[0].ContainerPort)
		name := container.Ports[0].Name
		for _, port := range []string{container.Readiness.HTTPGet.Port, container.Liveness.HTTPGet.Port, service.Spec.Ports[0].TargetPort} {
			if port != name {
				t.Errorf("%s: a probe or the service uses port %q, the container names it %q", file, port, name)
			}
		}
	}
	for where, port := range got {
		if port != want {
			t.Errorf("%s has port %s, the image listens on %s", where, port, want)
		}
	}
}

func TestSelectorsMatchThePods(t *testing.T) {
	service := readYAML[struct{ Spec struct{ Selector labels } }](t, "kubernetes/service.yaml")
	budget := readYAML[struct{ Spec struct{ Selector selector } }](t, "kubernetes/poddisruptionbudget.yaml")
	policy := readYAML[struct {
		Spec struct {
			Selector selector `yaml:"podSelector"`
		}
	}](t, "kubernetes/networkpolicy.yaml")
	for _, file := range pods {
		w := readYAML[workload](t, file)
		selectors := []labels{
			w.Spec.Selector.MatchLabels, service.Spec.Selector, budget.Spec.Selector.MatchLabels, policy.Spec.Selector.MatchLabels,
		}
		for _, spread := range w.Spec.Template.Spec.Spread {
			selectors = append(selectors, spread.Selector.MatchLabels)
		}
		for _, s := range selectors {
			if len(s) == 0 {
				t.Errorf("%s: a selector is empty", file)
			}
			for key, value := range s {
				if w.Spec.Template.Metadata.Labels[key] != value {
					t.Errorf("a selector requires %s=%s, which the pods of %s do not have", key, value, file)
				}
			}
		}
	}
}

// Two servers with a SQLite store would each have their own plants, and a store that is
// not on the volume would be lost with its pod.
func TestSQLiteStoreHasOnePodAndItsVolume(t *testing.T) {
	w := readYAML[workload](t, "kubernetes-sqlite/statefulset.yaml").Spec
	c := w.Template.Spec.Containers[0]
	if w.Replicas != 1 || len(w.Claims) != 1 || len(c.Mounts) != 1 {
		t.Fatalf("%d replicas, %d claims and %d mounts, want one of each", w.Replicas, len(w.Claims), len(c.Mounts))
	}
	claim, mount := w.Claims[0], c.Mounts[0]
	if claim.Metadata.Name != mount.Name || !slices.Equal(claim.Spec.AccessModes, []string{"ReadWriteOnce"}) {
		t.Errorf("the pod mounts %+v, the claim is %+v", mount, claim)
	}
	if db := c.env("PLANTSTORE_DB"); path.Dir(db) != mount.Path {
		t.Errorf("the store is %q, the volume is at %s", db, mount.Path)
	}
	patches := read(t, "kubernetes-sqlite/kustomization.yaml")
	for _, kind := range []string{"Deployment", "PodDisruptionBudget"} {
		if !regexp.MustCompile(`\$patch: delete\s+apiVersion: \S+\s+kind: ` + kind).MatchString(patches) {
			t.Errorf("the %s with PostgreSQL is not left out", kind)
		}
	}
}

// The command of the timer's service, on a store and directories of the test.
func TestBackupServiceWritesABackupAndItsTextfile(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "plants.db")
	create := exec.CommandContext(t.Context(), binary, "token", "create", "--init", "--name", "x", "--db", db)
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const backups = "/var/backups/plantstore"
	if writable := find(t, "plantstore-backup.service", `(?m)^ReadWritePaths=(.*)$`); !slices.Equal(writable, []string{backups}) {
		t.Errorf("the service may write to %q", writable)
	}
	line := find(t, "plantstore-backup.service", `(?m)^ExecStart=\S+/plantstore (.*)$`)[0]
	cmd := exec.CommandContext(t.Context(), binary, strings.Fields(strings.ReplaceAll(line, backups, dir))...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_DB="+db)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("plantstore %s: %v: %s", line, err, out)
	}
	for _, pattern := range []string{"plants-*.db", "plantstore.prom"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) != 1 {
			t.Errorf("%s: %q, %v", pattern, found, err)
		}
	}
}

func TestSecretTemplateIsComplete(t *testing.T) {
	template := readYAML[secret](t, "kubernetes/secret.example.yaml")
	used := map[string]bool{}
	for _, file := range pods {
		for _, env := range readYAML[workload](t, file).Spec.Template.Spec.Containers[0].Env {
			ref := env.ValueFrom.Secret
			if ref.Name == "" {
				continue
			}
			used[ref.Key] = true
			if _, ok := template.StringData[ref.Key]; !ok || ref.Name != template.Metadata.Name {
				t.Errorf("%s: %s refers to %s in secret %s, which the template does not have", file, env.Name, ref.Key, ref.Name)
			}
		}
	}
	if len(used) != len(template.StringData) {
		t.Errorf("the template has %d values, the pods use %d", len(template.StringData), len(used))
	}
}

// A template that is applied unchanged must not create a token that is public.
func TestPlaceholderTokenIsRefused(t *testing.T) {
	for key, value := range readYAML[secret](t, "kubernetes/secret.example.yaml").StringData {
		if !strings.Contains(value, "<") {
			t.Errorf("%s has a value that looks real", key)
		}
		if key == "bootstrap-token" && plantstore.CheckSecret(value) == nil {
			t.Errorf("%q would be a valid token", value)
		}
	}
	for _, value := range find(t, "env.example", `(?m)^[A-Z_]+=(.*)$`) {
		if value != "" {
			t.Errorf("env.example has the value %q", value)
		}
	}
}

func TestKustomizationHasEveryManifestExceptTheSecret(t *testing.T) {
	k := readYAML[struct{ Resources []string }](t, "kubernetes/kustomization.yaml")
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "kustomization.yaml" || name == "secret.yaml" {
			continue
		}
		if want := name != "secret.example.yaml"; slices.Contains(k.Resources, name) != want {
			t.Errorf("%s is a resource: %t, want %t", name, !want, want)
		}
	}
}

// Dockerfile.dockerignore excludes everything that it does not list: a package in a
// new directory would be missing from the build.
func TestImageIsBuiltFromWhatTheBinaryNeeds(t *testing.T) {
	allowed := find(t, "Dockerfile.dockerignore", `(?m)^!(.+)$`)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{$p := .ImportPath}}{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`,
		"plantstore/cmd/plantstore")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	if len(files) == 0 {
		t.Fatal("go list returned no files")
	}
	for _, file := range files {
		file = strings.TrimPrefix(file, "plantstore/")
		top, _, _ := strings.Cut(file, "/")
		in := slices.ContainsFunc(allowed, func(pattern string) bool {
			ok, _ := path.Match(pattern, top)
			return ok
		})
		if !in || strings.Contains(file, "testdata/") {
			t.Errorf("%s is excluded from the image's build", file)
		}
	}
}
