#include "launcher/recipe/recipe_host_keys.h"

#include <charconv>

#include <fmt/format.h>

#include "launcher/recipe/host_list.h"
#include "launcher/recipe/recipe_key_kinds.h"
#include "launcher/recipe/recipe_number_keys.h"

namespace strait::recipe {
namespace {

using key_kinds::integer;
using key_kinds::number;
using key_kinds::text;
using key_kinds::text_list;
using Hosts = Recipe::Hosts;

template <auto Member>
constexpr auto in_hosts() {
  return [](auto& recipe) -> auto& { return recipe.hosts.*Member; };
}

template <auto Member>
constexpr auto in_slurm() {
  return [](auto& recipe) -> auto& { return recipe.hosts.slurm.*Member; };
}

// Said only where it is of use: the recipe of a run elsewhere has no such section.
RecipeKey for_slurm(RecipeKey key) {
  key.get = [get = std::move(key.get)](const Recipe& recipe) {
    return recipe.hosts.backend == BackendKind::slurm ? get(recipe) : RecipeValue();
  };
  return key;
}

RecipeKey list() {
  return {"hosts.list",
          "a list of hosts such as [\"alice@10.0.0.1\", { name = \"bob@b\", slots = 2 }]",
          "who runs stages, in order; for ssh and join",
          {},
          [](const RecipeValue& value, Recipe& recipe) {
            if (!host_list_objection(value).empty()) return false;
            recipe.hosts.list = host_list(value);
            return true;
          },
          [](const Recipe& recipe) {
            return recipe.hosts.list.empty() ? RecipeValue() : host_list_value(recipe.hosts.list);
          },
          host_list_objection};
}

bool set_ports(const RecipeValue& value, Recipe& recipe) {
  const auto* written = value.get_ptr<const std::string*>();
  if (written == nullptr) {
    return false;
  }
  std::pair<int, int> ports;
  const char* const end = written->data() + written->size();
  const auto first = std::from_chars(written->data(), end, ports.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
    return false;
  }
  const auto last = std::from_chars(first.ptr + 1, end, ports.second);
  if (last.ec != std::errc() || last.ptr != end || ports.first < 1 || ports.second > 65535 ||
      ports.first > ports.second) {
    return false;
  }
  recipe.hosts.ports = ports;
  return true;
}

RecipeKey ports() {
  return {"hosts.ports",
          "two ports from 1 to 65535, as in \"47000-47099\"",
          "that stages and the launcher may bind; absent: any free one, for local",
          {},
          set_ports,
          [](const Recipe& recipe) {
            const auto [first, last] = recipe.hosts.ports;
            return first == 0 ? RecipeValue() : RecipeValue(fmt::format("{}-{}", first, last));
          }};
}

}  // namespace

std::vector<RecipeKey> host_keys() {
  constexpr key_kinds::NumberRange kMegabits{1e-3, 1e7};
  return {
      key_kinds::word("hosts.backend", in_hosts<&Hosts::backend>(), "how processes are started"),
      list(),
      ports(),
      text("hosts.address", in_hosts<&Hosts::address>(), "an address of this machine",
           "where hosts reach the launcher; absent: as the launcher reaches them"),
      text("hosts.ssh_config", in_hosts<&Hosts::ssh_config>(), "a path",
           "what ssh reads instead of the user's own configuration"),
      integer("hosts.hold", in_hosts<&Hosts::hold>(), {1, 604'800},
              "seconds that stages go on without the launcher before they leave"),
      integer("hosts.join_wait", in_hosts<&Hosts::join_wait>(), {1, 604'800},
              "seconds until all hosts must have joined; for join"),
      text("hosts.links", in_hosts<&Hosts::links>(), "a path",
           "measured links and hosts, as strait probe writes them"),
      number("hosts.ship_megabits", in_hosts<&Hosts::ship_megabits>(), kMegabits,
             "a second, that files which hosts lack may take of the launcher's link; absent: all"),
      number("hosts.link_megabits", in_hosts<&Hosts::link_megabits>(), kMegabits,
             "a second, that a process can send and receive: for forecasts and what is chosen by "
             "them; absent: what this machine carries to itself"),
      for_slurm(text("hosts.slurm.partition", in_slurm<&SlurmSettings::partition>(), "a name",
                     "of nodes; absent: the cluster's default")),
      for_slurm(text("hosts.slurm.time", in_slurm<&SlurmSettings::time>(),
                     "a time as sbatch takes it, such as \"2:00:00\"",
                     "after which a job is requeued and goes on; absent: the partition's limit")),
      for_slurm(text("hosts.slurm.account", in_slurm<&SlurmSettings::account>(), "a name",
                     "who is charged; absent: the user's default")),
      for_slurm(integer("hosts.slurm.gpus_per_node", in_slurm<&SlurmSettings::gpus_per_node>(),
                        {0, 64}, "to ask for")),
      for_slurm(integer("hosts.slurm.stages_per_node", in_slurm<&SlurmSettings::stages_per_node>(),
                        {1, 4096}, "stage processes that share a node")),
      for_slurm(integer("hosts.slurm.warning", in_slurm<&SlurmSettings::warning>(), {1, 65'535},
                        "seconds before its time limit at which a job saves and is requeued")),
      for_slurm(text_list("hosts.slurm.options", in_slurm<&SlurmSettings::options>(),
                          "a list of words such as [\"--qos=long\"]", "further words for sbatch"))};
}

}  // namespace strait::recipe
