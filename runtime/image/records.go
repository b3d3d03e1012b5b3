package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// records remember which images were pulled, and with what. Before a pull its intent is written, and removed when the pull
// has failed or its record is written, so that at no moment a pulled image looks like one that was there before.
type records struct {
	off      bool // nothing is recorded
	images   runtime.Images
	log      *slog.Logger
	verifier verifier
	pulling  folder // intents
	done     folder // records

	mu        sync.Mutex      // guards the folders and the rest
	under     map[string]int  // pulls under way, by image
	cuts      map[string]bool // pulls of which nobody knows what they brought, by image
	recovered bool
}

func newRecords(cfg *Config) (*records, error) {
	v, err := newVerifier(cfg.Verify, cfg.Exempt)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.Root, "image_manager")
	return &records{
		off: cfg.Root == "", images: cfg.Images, log: cfg.Observe.Logger(), verifier: v,
		pulling: folder(filepath.Join(dir, "pulling")), done: folder(filepath.Join(dir, "pulled")),
		under: map[string]int{}, cuts: map[string]bool{},
	}, nil
}

// recover makes records, once, of pulls that had begun when the agent ended and whose image is there: with what they were
// pulled is not known, so everybody has to show something.
func (r *records) recover(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off || r.recovered {
		return
	}
	complete := true
	err := r.pulling.each(func(b []byte) error {
		i, err := readIntent(b)
		if err != nil || r.under[i.Image] > 0 {
			return err
		}
		ref, _, err := names(i.Image)
		if err != nil {
			return err
		}
		img, err := r.images.Image(ctx, ref)
		switch {
		case errors.Is(err, runtime.ErrNotFound):
			return nil // the engine may still bring it
		case err != nil:
			complete = false
			return err
		}
		if rec, err := r.read(img.ID); err == nil && rec == nil {
			rec := &record{Updated: metav1.Now(), Ref: img.ID}
			if err := r.write(rec); err != nil {
				return err
			}
		}
		return r.pulling.remove(i.Image)
	})
	if err != nil && ctx.Err() == nil {
		r.log.Warn("some pulls that had begun before are not cleared up", "err", err)
	}
	r.recovered = complete
}

// intend says that a pull begins.
func (r *records) intend(image string) error {
	if r.off {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under[image] == 0 {
		i := intent{metav1.TypeMeta{Kind: "ImagePullIntent", APIVersion: group + "v1beta1"}, image}
		if err := r.pulling.write(image, i); err != nil {
			return fmt.Errorf("record the intent to pull: %w", err)
		}
	}
	r.under[image]++
	return nil
}

// failed says that a pull has brought nothing.
func (r *records) failed(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended(image)
}

// cut says that nobody knows whether a pull has brought something: its intent stays until another pull of the image has.
func (r *records) cut(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts[image] = true
	r.ended(image)
}

// pulled says that a pull has brought an image; with nil it needed nothing. If that cannot be written the intent stays.
func (r *records) pulled(image, id string, used *runtime.Credential) {
	if r.off {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.add(image, id, used); err != nil {
		r.log.Error("a pulled image is not recorded; the next pod that wants it pulls it again", "image", image, "err", err)
		return
	}
	delete(r.cuts, image)
	r.ended(image)
}

// ended takes the intent away with the last pull. The caller holds mu.
func (r *records) ended(image string) {
	if r.off {
		return
	}
	if r.under[image]--; r.under[image] > 0 {
		return
	}
	delete(r.under, image)
	if r.cuts[image] {
		return
	}
	if err := r.pulling.remove(image); err != nil {
		r.log.Warn("the intent of an image pull is not removed", "image", image, "err", err)
	}
}

// add puts a credential into the record of an image. The caller holds mu.
func (r *records) add(image, id string, used *runtime.Credential) error {
	name, err := bare(image)
	if err != nil {
		return err
	}
	rec, err := r.read(id)
	if err != nil {
		r.log.Warn("a record of a pulled image cannot be read and is written anew", "image", image, "err", err)
	}
	if rec == nil {
		rec = &record{Ref: id}
	}
	with, changed := rec.With[name].with(used)
	if !changed {
		return nil
	}
	rec.With = maps.Clone(rec.With)
	if rec.With == nil {
		rec.With = map[string]pulledWith{}
	}
	rec.With[name], rec.Updated = with, metav1.Now()
	return r.write(rec)
}

// mayUse says whether a pod may use an image that is here, by what it has. What cannot be read allows nothing.
func (r *records) mayUse(image, id string, credentials func() ([]runtime.Credential, error)) (bool, error) {
	if r.off {
		return true, nil
	}
	rec, pulled, err := r.known(image, id)
	switch {
	case err != nil:
		r.log.Warn("records of pulled images cannot be read; it is pulled again", "image", image, "err", err)
		return false, nil
	case !r.verifier.verifies(image, pulled):
		return true, nil
	case rec == nil:
		return false, nil
	}
	name, err := bare(image)
	if err != nil {
		return false, nil // such a name was never pulled
	}
	with := rec.With[name]
	if with.Everybody {
		return true, nil
	}
	if len(with.Secrets) == 0 && len(with.Accounts) == 0 {
		return false, nil
	}
	has, err := credentials()
	if err != nil {
		return false, err
	}
	ok, learned := with.opens(has)
	if learned != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.add(image, id, learned); err != nil {
			r.log.Warn("what opens an image is not recorded", "image", image, "err", err)
		}
	}
	return ok, nil
}

// known is the record of an image, and whether it was pulled for a pod.
func (r *records) known(image, id string) (rec *record, pulled bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, err = r.read(id); rec != nil || err != nil {
		return rec, true, err
	}
	if r.under[image] > 0 {
		return nil, true, nil
	}
	b, err := r.pulling.read(image)
	return nil, b != nil, err
}

// read is nil for an image without a record. The caller holds mu.
func (r *records) read(id string) (*record, error) {
	b, err := r.done.read(id)
	if b == nil || err != nil {
		return nil, err
	}
	rec, err := readRecord(b)
	if err != nil || rec.Ref != id {
		return nil, err
	}
	return rec, nil
}

func (r *records) write(rec *record) error {
	rec.TypeMeta = metav1.TypeMeta{Kind: "ImagePulledRecord", APIVersion: group + "v1beta1"}
	return r.done.write(rec.Ref, rec)
}

// prune forgets images that are not in a listing, but for those recorded since it was asked for.
func (r *records) prune(list []runtime.Image, before time.Time) {
	if r.off {
		return
	}
	here := map[string]bool{}
	for i := range list {
		here[list[i].ID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.done.each(func(b []byte) error {
		rec, err := readRecord(b)
		if err != nil || here[rec.Ref] || !rec.Updated.Time.Before(before.Truncate(time.Second)) {
			return err
		}
		return r.done.remove(rec.Ref)
	})
	if err != nil {
		r.log.Warn("some records of images that are gone stay", "err", err)
	}
}

// forget an image that was removed.
func (r *records) forget(id string) {
	if r.off {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.done.remove(id); err != nil {
		r.log.Warn("the record of a removed image stays", "image", id, "err", err)
	}
}
