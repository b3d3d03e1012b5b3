package hygiene

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

// A bom is a bill of materials in the words of CycloneDX 1.6. It holds no time and no serial number: the same program has
// the same bill.
type bom struct {
	Format       string          `json:"bomFormat"`
	SpecVersion  string          `json:"specVersion"`
	Version      int             `json:"version"`
	Metadata     bomMetadata     `json:"metadata"`
	Components   []bomComponent  `json:"components"`
	Dependencies []bomDependency `json:"dependencies"`
}

type bomMetadata struct {
	Component  bomComponent  `json:"component"`
	Properties []bomProperty `json:"properties,omitempty"`
}

type bomComponent struct {
	Type       string        `json:"type"`
	Ref        string        `json:"bom-ref"`
	Name       string        `json:"name"`
	Version    string        `json:"version,omitempty"`
	PURL       string        `json:"purl"`
	Hashes     []bomHash     `json:"hashes,omitempty"`
	Licences   []bomLicence  `json:"licenses,omitempty"`
	Properties []bomProperty `json:"properties,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type bomLicence struct {
	Licence struct {
		ID string `json:"id"`
	} `json:"license"`
}

type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type bomDependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// bill reads what a program was built from out of the program itself, and writes it to file. It says how many modules that is.
func (r *Repo) bill(ctx context.Context, program, file string) (int, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return 0, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return 0, err
	}
	deps, err := r.dependencies(ctx)
	if err != nil {
		return 0, err
	}
	licences := map[string][]string{}
	for _, d := range deps {
		licences[d.path] = d.licences
	}
	b := newBOM(info, sha256.Sum256(content), licences)
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return 0, err
	}
	return len(b.Components), os.WriteFile(file, append(text, '\n'), 0o644)
}

func newBOM(info *debug.BuildInfo, sum [sha256.Size]byte, licences map[string][]string) bom {
	program := component("application", info.Main.Path, info.Main.Version, []string{"Apache-2.0"})
	program.Name = path.Base(info.Path)
	program.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(sum[:])}}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: bomMetadata{Component: program}}
	for _, s := range info.Settings {
		b.Metadata.Properties = append(b.Metadata.Properties, bomProperty{"go:build:" + s.Key, s.Value})
	}
	b.Components = append(b.Components, component("library", "std", strings.TrimPrefix(info.GoVersion, "go"), []string{"BSD-3-Clause"}))
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		c := component("library", d.Path, d.Version, licences[d.Path])
		if d.Sum != "" {
			c.Properties = []bomProperty{{"go:sum", d.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	slices.SortFunc(b.Components, func(x, y bomComponent) int { return strings.Compare(x.Ref, y.Ref) })
	all := bomDependency{Ref: program.Ref}
	for _, c := range b.Components {
		all.On = append(all.On, c.Ref)
	}
	b.Dependencies = []bomDependency{all}
	return b
}

func component(kind, module, version string, licences []string) bomComponent {
	if version == "(devel)" {
		version = ""
	}
	purl := "pkg:golang/" + module
	if version != "" {
		purl += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	c := bomComponent{Type: kind, Ref: purl, Name: module, Version: version, PURL: purl}
	for _, id := range licences {
		var l bomLicence
		l.Licence.ID = id
		c.Licences = append(c.Licences, l)
	}
	return c
}
