
#include <set>

#include "launcher/base/text.h"
#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/known_gpus.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {
namespace {

constexpr key_kinds::NumberRange kMegabits{1e-3, 1e7};
constexpr key_kinds::NumberRange kTflops{1e-6, 1e6};
constexpr key_kinds::NumberRange kPrice{0, 1e6};

// ---- the value of hosts.list

constexpr std::size_t kMostHosts = 4096;
constexpr key_kinds::IntegerRange kSlots{0, 4096};
constexpr key_kinds::IntegerRange kDevice{0, 4095};

// A field of a host's table. `take` sets it, and returns whether the value is allowed.
struct HostField {
  std::string_view name;
  std::string_view allowed;
  std::function<bool(const RecipeValue&, RecipeHost&)> take;
};

bool is_name_character(char c) { return base::is_ascii_alphanumeric(c) || c == '_'; }

// user@name, user@10.0.0.1, user@fd00::1: never an option of ssh, and nothing that a shell
// interprets.
bool host_name_fits(const RecipeValue& value) {
  const auto* name = value.get_ptr<const std::string*>();
  return name != nullptr && !name->empty() && name->size() <= 255 &&
         is_name_character(name->front()) && std::ranges::all_of(*name, [](char c) {
           return is_name_character(c) || c == '.' || c == ':' || c == '@' || c == '-' || c == '%';
         });
}

template <class Range>
bool take_number(const Range& range, const RecipeValue& value, auto& field) {
  if (range.holds(value)) field = value.get<decltype(Range::least)>();
  return range.holds(value);
}

bool take_text(const RecipeValue& value, std::string& field) {
  if (!key_kinds::is_clean_text(value)) return false;
  field = value.get<std::string>();
  return true;
}

bool take_memory(const RecipeValue& value, RecipeHost& host) {
  host.memory = parse_byte_size(value);
  return host.memory.has_value();
}

bool take_devices(const RecipeValue& value, RecipeHost& host) {
  const bool fits = value.is_array() && value.size() <= 64 &&
                    std::ranges::all_of(value, [](const auto& one) { return kDevice.holds(one); });
  if (fits) host.devices = value.get<std::vector<std::int64_t>>();
  return fits;
}

bool variable_name(const std::string& name) {
  return !name.empty() && !(name.front() >= '0' && name.front() <= '9') &&
         std::ranges::all_of(name, is_name_character);
}

bool take_environment(const RecipeValue& value, RecipeHost& host) {
  if (!value.is_object() || value.size() > 256) return false;
  for (const auto& [name, text] : value.items()) {
    if (!variable_name(name) || !key_kinds::is_clean_text(text)) return false;
  }
  host.environment = value.get<std::map<std::string, std::string>>();
  return true;
}

const std::vector<HostField>& host_fields() {
  using V = RecipeValue;
  using H = RecipeHost;
  static const std::vector<HostField> kFields = {
      {"name", "a name that ssh takes, such as \"alice@10.0.0.1\"",
       [](const V& v, H& h) { return host_name_fits(v) && take_text(v, h.name); }},
      {"address", "an IP address of the host's own",
       [](const V& v, H& h) { return host_name_fits(v) && take_text(v, h.address); }},
      {"slots", "an integer from 0 to 4096",
       [](const V& v, H& h) { return take_number(kSlots, v, h.slots); }},
      {"memory", kByteSizeForm, take_memory},
      {"devices", "a list of GPU numbers, as in [0, 1]", take_devices},
      {"directory", "a path", [](const V& v, H& h) { return take_text(v, h.directory); }},
      {"environment", "a table of variables and their texts", take_environment},
      {"tflops", "a number from 0.000001 to 1000000",
       [](const V& v, H& h) { return take_number(kTflops, v, h.tflops); }},
      {"device", "a GPU that strait knows, such as \"RTX 4090\"; state tflops of another one",
       [](const V& v, H& h) { return take_text(v, h.device) && known_gpu(h.device) != nullptr; }},
      {"price", "a number from 0 to 1000000",
       [](const V& v, H& h) { return take_number(kPrice, v, h.price); }},
      {"uplink_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.uplink_megabits); }},
      {"downlink_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.downlink_megabits); }},
      {"up_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.up_megabits); }},
      {"down_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.down_megabits); }}};
  return kFields;
}

std::string read_host(const RecipeValue& value, RecipeHost& host) {
  if (value.is_string()) {
    return host_fields().front().take(value, host)
               ? ""
               : fmt::format("{} is not a host name for ssh", value.dump());
  }
  if (!value.is_object()) return value.dump() + " is neither a name nor a table";
  std::vector<std::string_view> names;
  for (const HostField& known : host_fields()) names.push_back(known.name);
  for (const auto& [name, field] : value.items()) {
    const auto known = std::ranges::find(host_fields(), name, &HostField::name);
    if (known == host_fields().end()) {
      const auto near = base::nearest_name(name, names);
      return fmt::format("a host has no \"{}\"{}", name,
                         near.empty() ? fmt::format("; it may have {}", fmt::join(names, ", "))
                                      : fmt::format("; did you mean \"{}\"?", near));
    }
    if (!known->take(field, host)) {
      const auto called = value.find("name");
      const bool has_name = called != value.end() && called->is_string();
      return fmt::format("{} of host {} is {}, but must be {}", name,
                         has_name ? called->get<std::string>() : "?", field.dump(), known->allowed);
    }
  }
  return host.name.empty() ? "a host without a name" : "";
}

// Why the list is not allowed; empty: it is.
std::string host_list_objection(const RecipeValue& value) {
  if (!value.is_array() || value.empty() || value.size() > kMostHosts) return "it is no such list";
  std::set<std::string> seen;
  for (const RecipeValue& element : value) {
    RecipeHost host;
    if (std::string objection = read_host(element, host); !objection.empty()) return objection;
    if (!seen.insert(host.name).second) {
      return fmt::format(
          "{} is listed twice; list it once, with slots = 2 where two stages shall share it",
          host.name);
    }
  }
  return "";
}

std::vector<RecipeHost> host_list(const RecipeValue& value) {
  std::vector<RecipeHost> hosts;
  for (const RecipeValue& element : value) read_host(element, hosts.emplace_back());
  return hosts;
}

// The shortest form that reads back equal: a host with only a name is a string.
RecipeValue host_list_value(const std::vector<RecipeHost>& hosts) {
  RecipeValue list = RecipeValue::array();
  for (const RecipeHost& host : hosts) {
    RecipeValue table = {{"name", host.name}};
    if (!host.address.empty()) table["address"] = host.address;
    if (host.slots) table["slots"] = *host.slots;
    if (host.memory) table["memory"] = format_byte_size(*host.memory);
    if (!host.devices.empty()) table["devices"] = host.devices;
    if (!host.directory.empty()) table["directory"] = host.directory;
    if (!host.environment.empty()) table["environment"] = host.environment;
    if (host.tflops) table["tflops"] = *host.tflops;
    if (!host.device.empty()) table["device"] = host.device;
    if (host.price) table["price"] = *host.price;
    if (host.uplink_megabits) table["uplink_megabits"] = *host.uplink_megabits;
    if (host.downlink_megabits) table["downlink_megabits"] = *host.downlink_megabits;
    if (host.up_megabits) table["up_megabits"] = *host.up_megabits;
    if (host.down_megabits) table["down_megabits"] = *host.down_megabits;
    list.push_back(table.size() == 1 ? table.at("name") : table);
  }
  return list;
}

// ---- keys

using key_kinds::flag;
using key_kinds::integer;
using key_kinds::number;
using key_kinds::text;
using key_kinds::text_list;
using key_kinds::written_if_set;
using Hosts = Recipe::Hosts;

template <auto Member>
constexpr auto in_hosts() {
  return [](auto& recipe) -> auto& { return recipe.hosts.*Member; };
}

// A list of hosts; `objection` as of RecipeKey.
template <class Field>
RecipeKey hosts_key(const std::string& name, Field field_of, const std::string& example,
                    const std::string& help, std::string (*objection)(const RecipeValue&)) {
  return {name,
          fmt::format("a list of hosts such as [\"alice@10.0.0.1\", {{ name = \"bob@b\", {} }}]",
                      example),
          help,
          {},
          [=](const RecipeValue& value, Recipe& recipe) {
            if (!objection(value).empty()) return false;
            field_of(recipe) = host_list(value);
            return true;
          },
          [=](const Recipe& recipe) {
            const std::vector<RecipeHost>& hosts = field_of(recipe);
            return hosts.empty() ? RecipeValue() : host_list_value(hosts);
          },
          objection};
}

std::string spare_objection(const RecipeValue& value) {
  if (value == RecipeValue::array()) return "";  // no longer any
  if (std::string objection = host_list_objection(value); !objection.empty()) return objection;
  for (const RecipeHost& host : host_list(value)) {
    if (host.slots) {
      return fmt::format("{} has slots, but a spare host gets those of the host that it replaces",
                         host.name);
    }
  }
  return "";
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

RecipeKey backend_key() {
  RecipeKey key =
      key_kinds::choice("hosts.backend", in_hosts<&Hosts::backend>(), "how processes are started");
  key.objection = [](const RecipeValue& value) {
    return value == "slurm" ? "for Slurm leave it and [hosts.slurm] out and start the recipe with: "
                              "srun strait run RECIPE --rendezvous"
                            : "";
  };
  return key;
}

// It has no field: the reader replaces it by the list of the hosts in the file.
RecipeKey hostfile_key() {
  return {"hosts.file",
          "a path",
          "of a hostfile, with lines \"HOST slots=N\", in place of hosts.list",
          {},
          [](const RecipeValue& /*value*/, Recipe& /*recipe*/) { return false; },
          [](const Recipe& /*recipe*/) { return RecipeValue(); }};
}

}  // namespace

std::vector<RecipeKey> host_keys() {
  return {
      backend_key(),
      hostfile_key(),
      hosts_key("hosts.list", in_hosts<&Hosts::list>(), "slots = 2",
                "of stage processes, in order; for ssh and join", host_list_objection),
      hosts_key("hosts.spare", in_hosts<&Hosts::spare>(), "address = \"10.0.0.2\"",
                "that take the place of lost ones when the run restarts by itself",
                spare_objection),
      integer("hosts.restart", in_hosts<&Hosts::restart>(), {0, 1000},
              "how often in a row, without a new checkpoint, a run whose process or host is lost "
              "restarts by itself; absent: 3 over hosts, 0 on this machine"),
      ports(),
      text("hosts.address", in_hosts<&Hosts::address>(), "an address of this machine",
           "where hosts reach the launcher; absent: as the launcher reaches them"),
      text("hosts.ssh_config", in_hosts<&Hosts::ssh_config>(), "a path",
           "what ssh reads instead of the user's own configuration"),
      integer("hosts.hold", in_hosts<&Hosts::hold>(), {1, 604'800},
              "reconnect window: seconds that stages run without the launcher before they exit"),
      integer("hosts.join_wait", in_hosts<&Hosts::join_wait>(), {1, 604'800},
              "seconds until all hosts must have joined; for join"),
      text("hosts.links", in_hosts<&Hosts::links>(), "a path",
           "measured links and hosts, as strait probe writes them"),
      number("hosts.ship_megabits", in_hosts<&Hosts::ship_megabits>(), kMegabits,
             "per second, of the launcher's link for file transfer to hosts; absent: all"),
      number("hosts.link_megabits", in_hosts<&Hosts::link_megabits>(), kMegabits,
             "per second, of each host's line, or on one machine each process's, in each "
             "direction: for forecasts and choices based on them; absent: assumed"),
      written_if_set(flag("hosts.shared_memory", in_hosts<&Hosts::shared_memory>(),
                          "false: links between processes of one host send everything over "
                          "loopback, encrypted; absent: true"))};
}

}  // namespace strait::recipe
