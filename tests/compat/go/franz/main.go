// franz-go: see ../program/program.go for what it does.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"odradek.test/compat/program"
)

func main() {
	program.Run(program.Modes{Admin: admin, Produce: produce, Member: member})
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	program.Must(err)
	return client
}

func admin(ctx context.Context, bootstrap, topic string) program.Seen {
	client := connect(bootstrap)
	defer client.Close()
	tool := kadm.NewClient(client)
	retention := program.RetentionMs
	configs := map[string]*string{"retention.ms": &retention}
	_, err := tool.CreateTopic(ctx, program.Partitions, 1, configs, topic)
	program.Must(err)
	_, again := tool.CreateTopic(ctx, program.Partitions, 1, configs, topic)
	seen := program.Seen{Created: true, CreatedAgain: again == nil}

	topics, err := tool.ListTopics(ctx, topic)
	program.Must(err)
	for _, partition := range topics[topic].Partitions.Sorted() {
		seen.Partitions = append(seen.Partitions, partition.Partition)
		seen.Leaders = append(seen.Leaders, partition.Leader)
	}
	described, err := tool.DescribeTopicConfigs(ctx, topic)
	program.Must(err)
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			seen.Retention = config.MaybeValue()
		}
	}
	ends, err := tool.ListEndOffsets(ctx, topic)
	program.Must(err)
	for _, partition := range seen.Partitions {
		end, _ := ends.Lookup(topic, partition)
		seen.Ends = append(seen.Ends, end.Offset)
	}
	brokers, err := tool.ListBrokers(ctx)
	program.Must(err)
	seen.Brokers = len(brokers)

	_, err = tool.DeleteTopics(ctx, topic)
	program.Must(err)
	program.Eventually(func() bool {
		left, err := tool.ListTopics(ctx)
		program.Must(err)
		return !left.Has(topic)
	})
	return seen
}

func produce(ctx context.Context, bootstrap, topic string, count int) {
	client := connect(bootstrap, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	defer client.Close()
	var records []*kgo.Record
	for number := range count {
		records = append(records, &kgo.Record{
			Key:     fmt.Appendf(nil, "key-%d", number),
			Value:   fmt.Appendf(nil, "value-%d", number),
			Headers: []kgo.RecordHeader{{Key: "number", Value: fmt.Append(nil, number)}},
		})
	}
	program.Must(client.ProduceSync(ctx, records...).FirstErr())
}

func member(ctx context.Context, bootstrap, group, topic string, session time.Duration) {
	var owned program.Owned
	take := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { owned.Add(parts[topic]) }
	lose := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { owned.Remove(parts[topic]) }
	client := connect(bootstrap,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(take),
		kgo.OnPartitionsRevoked(lose),
		kgo.OnPartitionsLost(lose),
	)
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			if client.CommitRecords(ctx, record) == nil {
				program.Read(record.Partition, record.Offset)
			}
		})
	}
}
