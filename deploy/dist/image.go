package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and group of the container.
const user = 65532

// blob is a part of an image, by its digest.
type blob struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`

	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// image collects the files of an OCI image layout.
type image struct{ all []file }

func (i *image) add(mediaType string, content []byte) blob {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	i.all = append(i.all, file{name: "blobs/sha256/" + digest, mode: 0o644, content: content})
	return blob{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (i *image) addJSON(mediaType string, value any) (blob, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return blob{}, err
	}
	return i.add(mediaType, text), nil
}

// writeImage writes the container image as an archive of an OCI image layout. It has what
// the Dockerfile has.
func (r *release) writeImage(path string, t target, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var plain, zipped bytes.Buffer
	root := []file{
		{name: "data/", mode: 0o755, owner: user},
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{name: "plantstore", mode: 0o755, content: binary},
	}
	if err := writeTar(&plain, root, r.time); err != nil {
		return err
	}
	if err := writeTarGz(&zipped, root, r.time); err != nil {
		return err
	}
	var i image
	layer := i.add("application/vnd.oci.image.layer.v1.tar+gzip", zipped.Bytes())
	config, err := i.addJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"created": r.time.Format("2006-01-02T15:04:05Z"), "os": t.os, "architecture": t.arch,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}},
		"config": map[string]any{
			"User": fmt.Sprintf("%[1]d:%[1]d", user), "WorkingDir": "/data",
			"Env":          []string{"PATH=/", "PLANTSTORE_ADDR=:8080", "PLANTSTORE_DB=/data/plants.db", "TMPDIR=/data"},
			"Entrypoint":   []string{"/plantstore"},
			"Cmd":          []string{"serve"},
			"ExposedPorts": map[string]any{"8080/tcp": struct{}{}},
			"Volumes":      map[string]any{"/data": struct{}{}},
			// Docker's addition to the OCI format, in nanoseconds.
			"Healthcheck": map[string]any{"Test": []string{"CMD", "/plantstore", "healthcheck"}, "Interval": 30e9, "Timeout": 6e9, "Retries": 3},
			"Labels":      map[string]string{"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit},
		},
	})
	if err != nil {
		return err
	}
	manifest, err := i.addJSON("application/vnd.oci.image.manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []blob{layer},
	})
	if err != nil {
		return err
	}
	manifest.Platform = map[string]string{"os": t.os, "architecture": t.arch}
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/plantstore:" + r.version}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []blob{manifest}})
	if err != nil {
		return err
	}
	i.all = append(i.all,
		file{name: "index.json", mode: 0o644, content: index},
		file{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	var out bytes.Buffer
	if err := writeTar(&out, i.all, r.time); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// authorities returns the public certificate authorities that Mozilla trusts. Those with
// constraints of their own are left out.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return b.Bytes()
}
