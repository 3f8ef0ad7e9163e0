// Blocks by the clock, as on a public chain, and none of Anvil's habits: what is sent waits in a pool.
const interval = Number(process.env.BLOCK_MS || "1000");

module.exports = {
  solidity: "0.8.28",
  networks: {
    hardhat: {
      hardfork: "prague",
      chainId: 31338,
      blockGasLimit: 30000000,
      mining: interval ? { auto: false, interval } : { auto: true },
      throwOnTransactionFailures: false, // one that fails is mined all the same, as everywhere
      loggingEnabled: false,
    },
  },
};
