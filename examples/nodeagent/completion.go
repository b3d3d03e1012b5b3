package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// completionCommand prints a script for one of the shells.
func completionCommand(args []string, out io.Writer) error {
	if len(args) == 1 {
		switch args[0] {
		case "bash":
			return bash(out)
		case "zsh":
			return zsh(out)
		case "fish":
			return fish(out)
		}
	}
	return errors.New("completion needs the name of a shell: bash, zsh or fish. For this shell alone: source <(nodeagent completion bash)")
}

// flagsOf are the flags that may follow a command word, by name; the empty word is the agent itself.
func flagsOf(word string) (out []*flag.Flag) {
	var f *flag.FlagSet
	switch word {
	case "", "check":
		f, _, _ = agentFlags()
	case "pods":
		f, _, _, _ = podsFlags(&client{})
	case "gc":
		f, _, _, _ = gcFlags(&client{})
	case "config":
		f, _, _, _ = configFlags()
	default:
		return nil
	}
	f.VisitAll(func(fl *flag.Flag) {
		if !strings.HasPrefix(fl.Usage, noEffect) {
			out = append(out, fl)
		}
	})
	return out
}

// valueOf is what a flag wants after it: file, folder, value, or nothing.
func valueOf(fl *flag.Flag) string {
	switch value, _ := flag.UnquoteUsage(fl); value {
	case "", "file":
		return value
	case "folder", "directory":
		return "folder"
	default:
		return "value"
	}
}

// dashed are the flags that want a value of this kind, all for *, as they are typed.
func dashed(flags []*flag.Flag, kind string) []string {
	var out []string
	for _, fl := range flags {
		if kind == "*" || valueOf(fl) == kind {
			out = append(out, dash(fl))
		}
	}
	return out
}

func dash(fl *flag.Flag) string {
	if len(fl.Name) == 1 {
		return "-" + fl.Name
	}
	return "--" + fl.Name
}

func wordNames() (out []string) {
	for _, w := range words() {
		out = append(out, w[0])
	}
	return out
}

func bash(out io.Writer) error {
	var cases strings.Builder
	for _, w := range []string{"pods", "gc", "config", ""} {
		pattern := w
		if w == "" {
			pattern = "*"
		}
		fmt.Fprintf(&cases, "\t%s) flags=%q ;;\n", pattern, strings.Join(dashed(flagsOf(w), "*"), " "))
	}
	all := slices.Concat(flagsOf(""), flagsOf("pods"))
	_, err := fmt.Fprintf(out, `# bash completion for nodeagent
_nodeagent() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags
	COMPREPLY=()
	case ${COMP_WORDS[1]} in
	completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
%[1]s	esac
	case $prev in
	%[2]s) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	%[3]s) COMPREPLY=($(compgen -d -- "$cur")); return ;;
	%[4]s) return ;;
	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$cur"))
	elif [[ $COMP_CWORD == 1 ]]; then
		COMPREPLY=($(compgen -W %[5]q -- "$cur"))
	fi
}
complete -o filenames -F _nodeagent nodeagent
`, cases.String(), strings.Join(unique(dashed(all, "file")), "|"), strings.Join(unique(dashed(all, "folder")), "|"),
		strings.Join(unique(dashed(all, "value")), "|"), strings.Join(wordNames(), " "))
	return err
}

func unique(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

func zsh(out io.Writer) error {
	var b strings.Builder
	b.WriteString("#compdef nodeagent\n# zsh completion for nodeagent\n_nodeagent() {\n\tlocal -a words_of_agent\n\twords_of_agent=(\n")
	for _, w := range words() {
		fmt.Fprintf(&b, "\t\t%s\n", single(w[0]+":"+w[1]))
	}
	b.WriteString("\t)\n\tcase $words[2] in\n\tcompletion) _values shell bash zsh fish ;;\n")
	for _, w := range []string{"pods", "gc", "config", ""} {
		pattern, first := w, single("1:word:("+w+")")
		if w == "" {
			pattern, first = "*", single("1:word:{_describe word words_of_agent}")
		}
		fmt.Fprintf(&b, "\t%s) _arguments", pattern)
		for _, fl := range flagsOf(w) {
			fmt.Fprintf(&b, " \\\n\t\t%s", single(zshFlag(fl)))
		}
		fmt.Fprintf(&b, " \\\n\t\t%s ;;\n", first)
	}
	b.WriteString("\tesac\n}\nif [[ $funcstack[1] == _nodeagent ]]; then _nodeagent; else compdef _nodeagent nodeagent; fi\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// zshFlag is a flag in the words of _arguments.
func zshFlag(fl *flag.Flag) string {
	_, usage := flag.UnquoteUsage(fl)
	escape := strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)
	text := dash(fl)
	kind := valueOf(fl)
	if kind != "" {
		text += "="
	}
	text += "[" + escape.Replace(usage) + "]"
	switch kind {
	case "file":
		text += ":file:_files"
	case "folder":
		text += ":folder:_files -/"
	case "value":
		text += ":value: "
	}
	return text
}

// single puts a text into single quotes, as zsh and fish read them.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func fish(out io.Writer) error {
	var b strings.Builder
	b.WriteString("# fish completion for nodeagent\ncomplete -c nodeagent -f\n")
	for _, w := range words() {
		fmt.Fprintf(&b, "complete -c nodeagent -n __fish_is_first_arg -a %s -d %s\n", w[0], single(w[1]))
	}
	b.WriteString("complete -c nodeagent -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	for _, w := range []string{"pods", "gc", "config", ""} {
		when := "__fish_seen_subcommand_from " + w
		if w == "" {
			when = "not __fish_seen_subcommand_from pods gc config completion help"
		}
		for _, fl := range flagsOf(w) {
			_, usage := flag.UnquoteUsage(fl)
			name, value := "-l "+fl.Name, ""
			if len(fl.Name) == 1 {
				name = "-s " + fl.Name
			}
			switch valueOf(fl) {
			case "file":
				value = " -r -F"
			case "folder":
				value = " -r -a '(__fish_complete_directories)'"
			case "value":
				value = " -x"
			}
			fmt.Fprintf(&b, "complete -c nodeagent -n %s %s%s -d %s\n", single(when), name, value, single(usage))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
