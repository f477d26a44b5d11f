#pragma once

#include <functional>
#include <variant>

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "launcher/base/errors.h"

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

// What a host needs to join a run by itself: where the launcher waits, and the keys by which the
// two prove their identity. It holds a secret, so it travels over stdin or in a file that only its
// owner can read. It is valid as long as the launcher's process lives; one that is made of a shared
// secret (rendezvous_keys) as long as that secret is in use.
struct JoinTicket {
  std::string build;  // of the launcher
  std::string run_name;
  std::uint32_t host = 0;  // number of this host
  std::uint32_t hosts = 0;
  std::string endpoint;  // "tcp://10.0.0.1:47000"; the host may be a name
  std::string launcher_key;
  net::CurveKeyPair keys;
  std::int64_t wait = 600;  // seconds that the host waits for the launcher
};

std::string to_text(const JoinTicket& ticket);
// UserError (mismatch): the text is not a ticket of this build.
JoinTicket parse_join_ticket(const std::string& text);

// The link of host number `host` with the launcher, for the end whose peer is `peer`.
net::LinkOptions join_link(std::uint32_t host, std::uint32_t hosts, net::ProcessName peer,
                           const std::string& peer_key);

// ---- the keys of a rendezvous, whose nodes share one secret

// The secret of STRAIT_JOIN_SECRET, or of the file that STRAIT_JOIN_SECRET_FILE names. Removes both
// from the environment, which the stages inherit; call it before there are threads. UserError:
// there is none, or it is not 64 hexadecimal digits.
std::string take_rendezvous_secret();
// The secret is a CURVE key: that of the launcher as it is, those of the nodes with their number
// mixed in, so that the launcher can tell them apart. Nobody without the secret knows any of the
// public keys, and CURVE makes new keys for each connection, so that nothing can be replayed.
net::CurveKeyPair launcher_keys(const std::string& secret);
net::CurveKeyPair node_keys(const std::string& secret, std::uint32_t rank);

// ---- messages

// host -> launcher, first.
struct NodeHello {
  std::string host_name;    // as it names itself
  std::uint64_t start = 0;  // random: tells this process from another one with the same ticket
};

// launcher -> host
struct StartAgent {  // in place of the present agent, if there is one
  std::string job;   // an AgentJob
};
struct RunEnded {  // this host is not needed any more
  base::ExitCode code = base::ExitCode::done;
  std::string text;  // empty: nothing to say
};

using JoinMessage = std::variant<NodeHello, StartAgent, RunEnded>;

net::Frame format(const JoinMessage& message);
// MessageError, as in control_message.h.
JoinMessage parse_join_message(std::span<const std::byte> frame);

}  // namespace strait::hosts
