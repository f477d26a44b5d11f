#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace strait::hosts {

// Which of the nodes of a rendezvous this one is. Every node runs the same command; the engine that
// starts them (torchrun, Slurm, Open MPI, ...) tells each its place by environment variables.
struct NodeRank {
  std::uint32_t rank = 0;
  std::uint32_t nodes = 0;
  std::string first;   // name or address of the node with rank 0
  std::string source;  // who said so, for messages: "Slurm"
};

// What the user says by flags; it replaces what the environment says.
struct RankFlags {
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> nodes;
  std::string first;  // empty: not given
};

// Reads a variable of the environment; empty: it is not set.
using Variable = std::function<std::string(const char* name)>;
// The environment of this process.
std::string own_variable(const char* name);

// Pure. UserError: something is missing or contradictory, or this is not the only process on its
// node: strait starts the stages of a node itself.
NodeRank node_rank(const RankFlags& flags, const Variable& variable);

// The address at which the node with rank 0, which is this one, is reached by the others: that of
// `node.first`, whose addresses are `found`, among its `own`. Pure. UserError: there is none, so
// another node is the first, or it is unclear which.
std::string address_of_first(const NodeRank& node, const std::vector<std::string>& found,
                             const std::vector<std::string>& own);

}  // namespace strait::hosts
