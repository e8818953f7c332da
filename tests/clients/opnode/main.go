// Reads a chain as op-node reads its L1, with the L1 client of op-service: opnode URL RPCKIND
// Without --l1.trustrpc, the default: the client checks the hashes of all blocks and receipts.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ethereum-optimism/optimism/op-service/client"
	"github.com/ethereum-optimism/optimism/op-service/eth"
	"github.com/ethereum-optimism/optimism/op-service/sources"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/log"
)

// must returns the value, or ends the program with the error.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx, logger := context.Background(), log.NewLogger(log.DiscardHandler())
	url, kind := os.Args[1], sources.RPCProviderKind(os.Args[2])
	count := 0
	// Two nodes with the same L1: the second gets its answers from the cache.
	for range 2 {
		rpc := must(client.NewRPC(ctx, logger, url))
		// A small cache, so that most reads leave the client.
		config := sources.L1ClientSimpleConfig(false, kind, 4)
		l1 := must(sources.NewL1Client(rpc, logger, nil, config))
		for _, label := range []eth.BlockLabel{eth.Unsafe, eth.Safe, eth.Finalized} {
			must(l1.L1BlockRefByLabel(ctx, label))
		}
		head := must(l1.L1BlockRefByLabel(ctx, eth.Unsafe))
		for number := uint64(1); number <= head.Number; number++ {
			block := must(l1.L1BlockRefByNumber(ctx, number))
			must(l1.L1BlockRefByHash(ctx, block.ParentHash))
			_, transactions, err := l1.InfoAndTxsByHash(ctx, block.Hash)
			must(0, err)
			_, receipts, err := l1.FetchReceipts(ctx, block.Hash)
			must(0, err)
			if len(receipts) != len(transactions) {
				must(0, fmt.Errorf("block %d has %d receipts", number, len(receipts)))
			}
			count += len(receipts)
		}
		// op-node proves the storage of a contract of the L2.
		must(l1.GetProof(ctx, common.Address{1}, []common.Hash{{}}, head.Hash.Hex()))
	}
	fmt.Printf("ok   %s: %d receipts\n", kind, count)
}
