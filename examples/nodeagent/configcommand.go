package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
)

// configCommand shows the configuration that flags and files come to; with --unsupported what of it has no effect.
func configCommand(args []string, out io.Writer) error {
	f, flags, unsupported, all := configFlags()
	f.SetOutput(out)
	rest, err := flags.Parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("config takes flags only, not %q", rest[0])
	}
	c, warnings, err := flags.Load()
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if err != nil {
		return err
	}
	if !*unsupported {
		return config.Print(out, c)
	}
	list := unheard(c)
	if *all {
		list = config.Ignored()
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, field := range list {
		fmt.Fprintf(table, "%s\t%s\n", field.Path, field.Note)
	}
	return table.Flush()
}

func configFlags() (f *flag.FlagSet, flags *config.Overrides, unsupported, all *bool) {
	f = flag.NewFlagSet("nodeagent config", flag.ContinueOnError)
	return f, config.Bind(f), f.Bool("unsupported", false, "list what is set and has no effect, with the reason"),
		f.Bool("all", false, "with --unsupported: list all that would have no effect, set or not")
}

// unheard are the fields that are set and have no effect.
func unheard(c *v1beta1.KubeletConfiguration) []config.Field {
	usual, _, err := config.Load(config.Options{})
	if err != nil {
		return nil // no file was read
	}
	return config.Unsupported(c, usual)
}
