// Reads a chain with go-ethereum's ethclient: ethclient URL
// Walks over all blocks, and fails on the first answer that the library does not accept.
package main

import (
	"context"
	"fmt"
	"math/big"
	"os"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

var ctx = context.Background()

// must returns the value, or ends the program with the error.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	return value
}

func check(holds bool, what ...any) {
	if !holds {
		must(0, fmt.Errorf("%s", fmt.Sprint(what...)))
	}
}

func main() {
	client := must(ethclient.Dial(os.Args[1]))
	chain := must(client.ChainID(ctx))
	check(chain.Cmp(must(client.NetworkID(ctx))) == 0, "network id")
	for _, tag := range []rpc.BlockNumber{rpc.LatestBlockNumber, rpc.SafeBlockNumber, rpc.FinalizedBlockNumber} {
		must(client.HeaderByNumber(ctx, big.NewInt(int64(tag))))
	}
	must(client.SuggestGasPrice(ctx))
	must(client.FeeHistory(ctx, 4, nil, []float64{10, 50}))
	for _, missing := range []error{
		second(client.BlockByHash(ctx, common.Hash{1})),
		second(client.TransactionReceipt(ctx, common.Hash{1})),
		second(client.HeaderByNumber(ctx, big.NewInt(1<<40))),
	} {
		check(missing == ethereum.NotFound, "missing content: ", missing)
	}
	head := must(client.BlockNumber(ctx))
	transactions := 0
	// Twice, because the second answer may come from the cache.
	for range 2 {
		for number := uint64(0); number <= head; number++ {
			transactions += read(client, chain, number)
		}
	}
	fmt.Printf("ok   %d blocks with %d transactions\n", 2*(head+1), transactions)
}

func second[T any](_ T, err error) error { return err }

// read reads everything about one block and returns the number of its transactions.
func read(client *ethclient.Client, chain *big.Int, number uint64) int {
	at := new(big.Int).SetUint64(number)
	header := must(client.HeaderByNumber(ctx, at))
	// The hash is computed from the members of the header.
	hash := header.Hash()
	check(must(client.HeaderByHash(ctx, hash)).Hash() == hash, "header by hash")
	block := must(client.BlockByNumber(ctx, at))
	check(block.Hash() == hash && must(client.BlockByHash(ctx, hash)).Hash() == hash, "block ", number)
	count := len(block.Transactions())
	check(must(client.TransactionCount(ctx, hash)) == uint(count), "transaction count")
	receipts := must(client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(hash, false)))
	check(len(receipts) == count, "receipts of the block")
	logs := 0
	for index, transaction := range block.Transactions() {
		found, pending := twice(client.TransactionByHash(ctx, transaction.Hash()))
		check(!pending && found.Hash() == transaction.Hash(), "transaction by hash")
		placed := must(client.TransactionInBlock(ctx, hash, uint(index)))
		check(placed.Hash() == transaction.Hash(), "transaction by index")
		sender := must(client.TransactionSender(ctx, transaction, hash, uint(index)))
		check(sender == must(types.Sender(types.LatestSignerForChainID(chain), transaction)), "sender")
		receipt := must(client.TransactionReceipt(ctx, transaction.Hash()))
		check(receipt.TxHash == transaction.Hash() && receipt.BlockHash == hash, "receipt")
		logs += len(receipt.Logs)
		must(client.BalanceAt(ctx, sender, at))
		must(client.NonceAt(ctx, sender, at))
		if created := receipt.ContractAddress; created != (common.Address{}) {
			must(client.CodeAt(ctx, created, at))
			must(client.StorageAt(ctx, created, common.Hash{}, at))
			must(client.CallContract(ctx, ethereum.CallMsg{To: &created}, at))
		}
	}
	check(len(must(client.FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &hash}))) == logs, "logs by hash")
	check(len(must(client.FilterLogs(ctx, ethereum.FilterQuery{FromBlock: at, ToBlock: at}))) == logs, "logs by number")
	return count
}

func twice[A, B any](a A, b B, err error) (A, B) { return a, must(b, err) }
