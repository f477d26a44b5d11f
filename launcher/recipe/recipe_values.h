#pragma once

#include <map>
#include <optional>
#include <utility>

#include "framework/codec/settings.h"
#include "framework/data/packer.h"
#include "framework/data/record.h"
#include "framework/data/sample_order.h"
#include "framework/net/path_conditions.h"

// The types of a recipe's values.
namespace strait::recipe {

// ---- enumerations

enum class Weights : std::uint8_t { load, random, run };  // run: of another one
enum class Dtype : std::uint8_t { float32, bfloat16 };
enum class Device : std::uint8_t { automatic, cpu, cuda };
enum class Recompute : std::uint8_t { none, layer, offload };
enum class Quantization : std::uint8_t { none, int8, int4, nf4 };
enum class PartitionKind : std::uint8_t { balanced, profile, ranges, plugin };
enum class DecayKind : std::uint8_t { cosine, linear, constant, inverse_sqrt };
enum class PreferenceKind : std::uint8_t { none, orpo, simpo, dpo, kto };
// Whether it compares with a reference model.
constexpr bool has_reference(PreferenceKind loss) {
  return loss == PreferenceKind::dpo || loss == PreferenceKind::kto;
}
// In place of the tokenizer's own.
enum class ChatTemplate : std::uint8_t { own, chatml, llama3, gemma, mistral, zephyr, alpaca };
enum class Moments : std::uint8_t { float32, bfloat16, int8 };
enum class OptimizerKind : std::uint8_t { adamw, muon };
// optimizer: of a stage on a GPU, masters, moments and the update are on the host. disk: the same,
// and of every stage moments, and masters apart from their parameters, are in files.
enum class Offload : std::uint8_t { none, optimizer, disk };
// When checkpoints come from the hosts to the launcher.
enum class CheckpointHome : std::uint8_t { automatic, all, weights, none };
enum class LossRule : std::uint8_t { stop, continue_run };  // "stop", "continue"
// Whether replicas sum gradients where these lie, or over links.
enum class GroupUse : std::uint8_t { automatic, never, always };
enum class BackendKind : std::uint8_t { local, ssh, join };
// Whether files of a run stay on its hosts; else all processes see the same.
constexpr bool stores_on_hosts(BackendKind b) {
  return b == BackendKind::ssh || b == BackendKind::join;
}

// The names of an enumeration in recipes, in the order of its values. The argument only selects the
// enumeration: all_names(Weights{}) is {"load", "random"}.
using Names = std::span<const std::string_view>;
Names all_names(Weights);
Names all_names(Dtype);
Names all_names(Device);
Names all_names(Recompute);
Names all_names(Quantization);
Names all_names(PartitionKind);
Names all_names(DecayKind);
Names all_names(PreferenceKind);
Names all_names(ChatTemplate);
Names all_names(Moments);
Names all_names(OptimizerKind);
Names all_names(Offload);
Names all_names(codec::WireDtype);
Names all_names(CheckpointHome);
Names all_names(LossRule);
Names all_names(GroupUse);
Names all_names(BackendKind);
Names all_names(data::Targets);
Names all_names(data::TooLong);
Names all_names(data::Packing);

template <class Enum>
std::string_view name_of(Enum value) {
  return all_names(value)[static_cast<std::size_t>(value)];
}

// ---- adapters

// The table model.lora.
struct LoraSettings {
  std::int64_t rank = 8;
  double alpha = 16;
  std::vector<std::string> targets;  // last parts of the names of matrices; empty: by `pattern`
  std::string pattern;               // a regular expression of whole names; empty: all matrices
  std::vector<std::string> target_parameters;  // tensors of all experts of a block, by last parts
  double dropout = 0;                          // of the adapters' input
  bool rslora = false;                         // scaled by alpha / sqrt(rank), not by alpha / rank
  bool dora = false;                           // norms of a matrix's outputs are trained, too
  std::map<std::string, std::int64_t> rank_pattern;  // ranks of matrices whose names end so
  std::map<std::string, double> alpha_pattern;       // the same
  std::vector<std::int64_t> layers;                  // only in these blocks; empty: in all
  std::vector<std::string> modules_to_save;          // trained whole
  bool operator==(const LoraSettings&) const = default;
};

// ---- hosts

// Default directory on a host for the files of a run.
inline constexpr const char* kHostDirectory = "~/.strait";
// Default first and last port that hosts and the launcher bind; firewalls have to allow them.
inline constexpr std::pair<int, int> kHostPorts = {47000, 47099};

// One host of `hosts.list`, which is a name or a table.
struct RecipeHost {
  std::string name = {};                    // for ssh: "alice@10.0.0.1"
  std::string address = {};                 // for other hosts; empty: the one that it reports
  std::optional<std::int64_t> slots = {};   // stage processes; absent: an even share
  std::optional<std::int64_t> memory = {};  // bytes for these processes; absent: all
  std::vector<std::int64_t> devices = {};   // GPUs that these processes share; empty: all
  std::string directory = {};               // for transferred files; empty: kHostDirectory
  std::map<std::string, std::string> environment = {};  // of its stage processes
  std::optional<double> tflops = {};  // of a stage process; for forecasts where it is not measured
  std::string device = {};            // name of its GPUs, such as "RTX 4090"; for forecasts
  std::optional<double> price = {};   // of an hour, in any currency
  std::optional<double> uplink_megabits = {};    // of its line, shared by all that it sends
  std::optional<double> downlink_megabits = {};  // the same, received; absent: as the uplink
  std::optional<double> up_megabits = {};        // limit of file transfer from this host
  std::optional<double> down_megabits = {};      // limit of file transfer to this host
  bool operator==(const RecipeHost&) const = default;
};

// The section [hosts].
struct HostSettings {
  BackendKind backend = BackendKind::local;  // local: this machine
  std::vector<RecipeHost> list;              // for ssh and join
  std::pair<int, int> ports = {0, 0};        // first and last to bind; 0: any free port
  std::string address;           // of this machine, for hosts; empty: its own towards them
  std::string ssh_config;        // empty: that of the user
  std::int64_t hold = 120;       // reconnect window: seconds without the launcher
  std::int64_t join_wait = 600;  // timeout until all hosts have joined; for join
  std::string links;             // file of measured speeds; empty: speeds are assumed
  std::optional<double> ship_megabits = std::nullopt;  // limit of file transfer; absent: none
  std::optional<double> link_megabits =
      std::nullopt;  // of a process, each direction; for forecasts
  std::optional<std::int64_t> restart =
      std::nullopt;               // starts in a row without progress; absent: by backend
  std::vector<RecipeHost> spare;  // take the place of lost ones
  net::PathConditions simulate;   // of every link; for local
  std::string simulate_link;      // set: of this one only, and the plan does not expect it
  bool shared_memory = true;      // links between processes of one host send through memory
  bool operator==(const HostSettings&) const = default;
};

// ---- origins

// Where each key of a recipe was set, for error messages. Not part of its value: all compare equal.
struct KeyOrigins {
  std::map<std::string, std::string, std::less<>> by_key;  // "recipes/x.toml:31:9"

  // "the default" where the key was not set.
  std::string of(std::string_view key) const {
    const auto found = by_key.find(key);
    return found == by_key.end() ? "the default" : found->second;
  }
  bool operator==(const KeyOrigins& /*other*/) const { return true; }
};

}  // namespace strait::recipe
