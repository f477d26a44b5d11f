#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/recipe/recipe_words.h"

namespace strait::recipe {

// Where on a host a run keeps its files, unless the recipe says otherwise.
inline constexpr const char* kHostDirectory = "~/.strait";
// What firewalls have to let through: first and last port that hosts and the launcher bind.
inline constexpr std::pair<int, int> kHostPorts = {47000, 47099};

// One host of `hosts.list`: a string there is its name, a table says more.
struct RecipeHost {
  std::string name = {};                    // as ssh takes it: "alice@10.0.0.1"
  std::string address = {};                 // where the others reach it; empty: as it reaches us
  std::optional<std::int64_t> slots = {};   // stage processes that it takes; absent: an even share
  std::optional<std::int64_t> memory = {};  // bytes that they may take; absent: all it has
  std::vector<std::int64_t> devices = {};   // its GPUs that they share; empty: all
  std::string directory = {};               // where it keeps what is shipped; empty: kHostDirectory
  std::map<std::string, std::string> environment = {};  // of the stage processes there
  std::optional<double> up_megabits = {};    // a second, that shipping may send from there, and
  std::optional<double> down_megabits = {};  // receive
  bool operator==(const RecipeHost&) const = default;
};

// What a Slurm job asks for.
struct SlurmSettings {
  std::string partition = {};             // empty: the cluster's default
  std::string time = {};                  // "2:00:00"; empty: the partition's limit
  std::string account = {};               // empty: the user's default
  std::int64_t gpus_per_node = 0;         // 0: none are asked for
  std::int64_t stages_per_node = 1;       // stage processes that share a node
  std::int64_t warning = 120;             // seconds before the limit: it saves and is requeued
  std::vector<std::string> options = {};  // further words for sbatch: "--qos=long"
  bool operator==(const SlurmSettings&) const = default;
};

// The section [hosts].
struct HostSettings {
  BackendKind backend = BackendKind::local;  // local: this machine
  std::vector<RecipeHost> list;              // for ssh and join
  std::pair<int, int> ports = {0, 0};  // first and last that may be bound; 0: any free, for local
  std::string address;                 // where hosts reach this one; empty: as it reaches them
  std::string ssh_config;              // instead of the user's own; empty: that
  std::int64_t hold = 120;             // seconds that stages go on without the launcher
  std::int64_t join_wait = 600;        // seconds until all must have joined; for join
  std::string links;                   // a file with measured links; empty: speeds are assumed
  std::optional<double> ship_megabits = std::nullopt;  // a second, for shipping; absent: all
  std::optional<double> link_megabits = std::nullopt;  // a second, each way of a process; forecast
  SlurmSettings slurm;
  bool operator==(const HostSettings&) const = default;
};

}  // namespace strait::recipe
