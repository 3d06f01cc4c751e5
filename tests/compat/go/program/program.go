// Package program is what the programs in this folder have in common.
//
//	admin BOOTSTRAP TOPIC                 creates the topic, asks for it, deletes it; prints what it saw as one JSON object
//	produce BOOTSTRAP TOPIC COUNT         sends records `key-N` → `value-N`
//	member BOOTSTRAP GROUP TOPIC name=…   a member of a group, in the words of tests/compat/group_member.py
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Partitions and RetentionMs are what `admin` creates its topic with.
const (
	Partitions  = 3
	RetentionMs = "3600000"
)

// Seen is what `admin` found out.
type Seen struct {
	Created      bool    `json:"created"`
	CreatedAgain bool    `json:"createdAgain"`
	Partitions   []int32 `json:"partitions"`
	Leaders      []int32 `json:"leaders"`
	Retention    string  `json:"retention"`
	Ends         []int64 `json:"ends"`
	Brokers      int     `json:"brokers"`
}

// Modes are the three things a program does with its client library.
type Modes struct {
	Admin   func(ctx context.Context, bootstrap, topic string) Seen
	Produce func(ctx context.Context, bootstrap, topic string, count int)
	Member  func(ctx context.Context, bootstrap, group, topic string, session time.Duration)
}

// Run does what the command line says.
func Run(modes Modes) {
	words := os.Args[2:]
	switch os.Args[1] {
	case "admin":
		Must(json.NewEncoder(os.Stdout).Encode(modes.Admin(context.Background(), words[0], words[1])))
	case "produce":
		count, err := strconv.Atoi(words[2])
		Must(err)
		modes.Produce(context.Background(), words[0], words[1], count)
	case "member":
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		modes.Member(ctx, words[0], words[1], words[2], session(words[3:]))
	}
}

func session(words []string) time.Duration {
	for _, word := range words {
		if text, found := strings.CutPrefix(word, "session_ms="); found {
			milliseconds, err := strconv.Atoi(text)
			Must(err)
			return time.Duration(milliseconds) * time.Millisecond
		}
	}
	return 45 * time.Second
}

// Owned are the partitions a member owns, none at first; every change is said.
type Owned struct {
	lock       sync.Mutex
	partitions []int32
}

// Add says that these are owned, too.
func (owned *Owned) Add(partitions []int32) {
	owned.change(func() { owned.partitions = append(owned.partitions, partitions...) })
}

// Remove says that these are owned no more.
func (owned *Owned) Remove(partitions []int32) {
	gone := func(partition int32) bool { return slices.Contains(partitions, partition) }
	owned.change(func() { owned.partitions = slices.DeleteFunc(owned.partitions, gone) })
}

// Set says that these are owned and no others.
func (owned *Owned) Set(partitions []int32) {
	owned.change(func() { owned.partitions = partitions })
}

func (owned *Owned) change(how func()) {
	owned.lock.Lock()
	defer owned.lock.Unlock()
	how()
	slices.Sort(owned.partitions)
	var all []string
	for _, partition := range owned.partitions {
		all = append(all, strconv.Itoa(int(partition)))
	}
	fmt.Println("owns", strings.Join(all, ","))
}

// Read says that a record was read and its offset committed.
func Read(partition int32, offset int64) { fmt.Println("read", partition, offset) }

// Eventually waits for something to become true.
func Eventually(holds func() bool) {
	deadline := time.Now().Add(15 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			panic("it never came true")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Must stops the program where there is an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
