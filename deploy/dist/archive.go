package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// file is an entry of an archive. A directory's name ends in a slash.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// files returns what an archive has.
func (r *release) files(program string) ([]file, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	all := []file{
		{name: filepath.Base(program), mode: 0o755, content: binary},
		{name: "plantstore.1", mode: 0o644, content: r.manual},
		{name: "completions/plantstore.bash", mode: 0o644, content: r.shells["bash"]},
		{name: "completions/_plantstore", mode: 0o644, content: r.shells["zsh"]},
		{name: "completions/plantstore.fish", mode: 0o644, content: r.shells["fish"]},
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: name, mode: 0o644, content: text})
	}
	return all, nil
}

func (r *release) writeArchive(base string, t target, program string) error {
	all, err := r.files(program)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].name = path.Join(filepath.Base(base), all[i].name)
	}
	var b bytes.Buffer
	if t.os == "windows" {
		if err := writeZip(&b, all, r.time); err != nil {
			return err
		}
		return os.WriteFile(base+".zip", b.Bytes(), 0o644)
	}
	if err := writeTarGz(&b, all, r.time); err != nil {
		return err
	}
	return os.WriteFile(base+".tar.gz", b.Bytes(), 0o644)
}

func writeZip(out io.Writer, all []file, at time.Time) error {
	w := zip.NewWriter(out)
	for _, f := range all {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(f.mode))
		entry, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeTarGz(out io.Writer, all []file, at time.Time) error {
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, all, at); err != nil {
		return err
	}
	return z.Close()
}

func writeTar(out io.Writer, all []file, at time.Time) error {
	w := tar.NewWriter(out)
	for _, f := range all {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: at, Typeflag: tar.TypeReg}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}
