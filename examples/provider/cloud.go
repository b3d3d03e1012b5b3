package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Cloud is an invented backend: it rents machines that run applications. It knows nothing of Kubernetes. Machines take
// their time to come and to go, and the first order of each fails.
type Cloud struct {
	Boot, Shutdown time.Duration

	mu       sync.Mutex // guards what follows
	machines map[string]*Machine
	refused  map[string]bool
}

// Machine is one that was ordered.
type Machine struct {
	Name string
	Tags map[string]string
	IP   string
	Up   time.Time // when it has booted, which may be to come
	Down bool      // it was shut down
	Apps []App
}

// App is an application of a machine. Its command is "serve", or "work <duration> <exit code>".
type App struct {
	Name    string
	Image   string
	Command []string
	Starts  int       // how often it was started again
	Started time.Time // which may be to come
	Ended   time.Time // zero: not yet
	Code    int
}

// ErrNoMachine says that there is no such machine, or application on it.
var ErrNoMachine = errors.New("no such machine")

// Order rents a machine. One of that name must not exist.
func (c *Cloud) Order(ctx context.Context, m Machine) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.machines[m.Name] != nil:
		return fmt.Errorf("machine %s exists", m.Name)
	case !c.refused[m.Name]:
		if c.machines == nil {
			c.machines, c.refused = map[string]*Machine{}, map[string]bool{}
		}
		c.refused[m.Name] = true
		return errors.New("no capacity in zone b")
	}
	m.Up = time.Now().Add(c.Boot)
	m.IP = fmt.Sprintf("203.0.113.%d", len(c.refused)%250+1)
	m.Apps = slices.Clone(m.Apps)
	for i := range m.Apps {
		m.Apps[i].Started = m.Up
	}
	c.machines[m.Name] = &m
	return nil
}

// Machines are all there are, as they are now.
func (c *Cloud) Machines(ctx context.Context) ([]Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Machine
	for _, name := range slices.Sorted(maps.Keys(c.machines)) {
		m := *c.machines[name]
		m.Apps = slices.Clone(m.Apps)
		for i := range m.Apps {
			m.Apps[i].look(time.Now())
		}
		out = append(out, m)
	}
	return out, ctx.Err()
}

// look brings an application up to date, and says whether it has ended.
func (a *App) look(now time.Time) bool {
	if !a.Ended.IsZero() || len(a.Command) < 3 || a.Command[0] != "work" {
		return !a.Ended.IsZero()
	}
	d, _ := time.ParseDuration(a.Command[1])
	if end := a.Started.Add(d); !now.Before(end) {
		a.Ended = end
		_, _ = fmt.Sscan(a.Command[2], &a.Code)
	}
	return !a.Ended.IsZero()
}

// Log is what an application has printed.
func (c *Cloud) Log(ctx context.Context, machine, app string) (string, error) {
	a, err := c.app(ctx, machine, app)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s begins to %s\n", app, a.Command[0])
	if !a.Ended.IsZero() {
		text += fmt.Sprintf("%s is done\n", app)
	}
	return text, nil
}

// Run runs a command beside an application: "healthy" is good once the application has been up for a moment.
func (c *Cloud) Run(ctx context.Context, machine, app string, command []string) (output string, code int, err error) {
	a, err := c.app(ctx, machine, app)
	switch {
	case err != nil:
		return "", 0, err
	case !slices.Equal(command, []string{"healthy"}):
		return "command not found\n", 127, nil
	case time.Since(a.Started) < 300*time.Millisecond:
		return "still warming up\n", 1, nil
	}
	return "fine\n", 0, nil
}

func (c *Cloud) app(ctx context.Context, machine, app string) (App, error) {
	machines, err := c.Machines(ctx)
	for _, m := range machines {
		for _, a := range m.Apps {
			if m.Name == machine && a.Name == app {
				return a, err
			}
		}
	}
	return App{}, ErrNoMachine
}

// Restart starts an application of a machine again.
func (c *Cloud) Restart(machine, app string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[machine]; m != nil {
		for i := range m.Apps {
			if a := &m.Apps[i]; a.Name == app && !m.Down {
				*a = App{Name: a.Name, Image: a.Image, Command: a.Command, Starts: a.Starts + 1, Started: time.Now()}
				return nil
			}
		}
	}
	return ErrNoMachine
}

// Shut shuts a machine down and returns when nothing runs on it. What its applications came to can still be asked for.
func (c *Cloud) Shut(ctx context.Context, machine string) error {
	if !c.up(machine) {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.Shutdown):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[machine]; m != nil && !m.Down {
		m.Down = true
		for i := range m.Apps {
			if a := &m.Apps[i]; !a.look(time.Now()) {
				a.Ended, a.Code = time.Now(), 0
			}
		}
	}
	return nil
}

func (c *Cloud) up(machine string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[machine]
	return m != nil && !m.Down
}

// GiveBack gives a machine back, which is shut down before, and returns when it is gone.
func (c *Cloud) GiveBack(ctx context.Context, machine string) error {
	if err := c.Shut(ctx, machine); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.machines, machine)
	return nil
}
