#include "launcher/recipe/host_list.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "launcher/recipe/byte_size.h"
#include "launcher/base/text.h"
#include "launcher/recipe/recipe_key_kinds.h"
#include "launcher/recipe/recipe_number_keys.h"

namespace strait::recipe {
namespace {

constexpr std::size_t kMostHosts = 4096;
constexpr key_kinds::IntegerRange kSlots{0, 4096};
constexpr key_kinds::IntegerRange kDevice{0, 4095};
constexpr key_kinds::NumberRange kMegabits{1e-3, 1e7};

// A part of a host's table: what may stand there, and where it goes. `take` returns whether the
// value fits.
struct HostPart {
  std::string_view name;
  std::string_view allowed;
  std::function<bool(const RecipeValue&, RecipeHost&)> take;
};

bool plain_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// What ssh takes and no shell makes anything of: user@name, user@10.0.0.1, user@fd00::1.
bool host_name_fits(const RecipeValue& value) {
  const auto* name = value.get_ptr<const std::string*>();
  return name != nullptr && !name->empty() && name->size() <= 255 && plain_letter(name->front()) &&
         std::ranges::all_of(*name, [](char c) {
           return plain_letter(c) || c == '.' || c == ':' || c == '@' || c == '-' || c == '%';
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
         std::ranges::all_of(name, plain_letter);
}

bool take_environment(const RecipeValue& value, RecipeHost& host) {
  if (!value.is_object() || value.size() > 256) return false;
  for (const auto& [name, text] : value.items()) {
    if (!variable_name(name) || !key_kinds::is_clean_text(text)) return false;
  }
  host.environment = value.get<std::map<std::string, std::string>>();
  return true;
}

const std::vector<HostPart>& host_parts() {
  using V = RecipeValue;
  using H = RecipeHost;
  static const std::vector<HostPart> kParts = {
      {"name", "a name that ssh takes, such as \"alice@10.0.0.1\"",
       [](const V& v, H& h) { return host_name_fits(v) && take_text(v, h.name); }},
      {"address", "an IP address or a host's name",
       [](const V& v, H& h) { return host_name_fits(v) && take_text(v, h.address); }},
      {"slots", "an integer from 0 to 4096",
       [](const V& v, H& h) { return take_number(kSlots, v, h.slots); }},
      {"memory", kByteSizeWords, take_memory},
      {"devices", "a list of GPU numbers, as in [0, 1]", take_devices},
      {"directory", "a path", [](const V& v, H& h) { return take_text(v, h.directory); }},
      {"environment", "a table of variables and their texts", take_environment},
      {"up_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.up_megabits); }},
      {"down_megabits", "a number from 0.001 to 10000000",
       [](const V& v, H& h) { return take_number(kMegabits, v, h.down_megabits); }}};
  return kParts;
}

std::string read_host(const RecipeValue& value, RecipeHost& host) {
  if (value.is_string()) {
    return host_parts().front().take(value, host)
               ? ""
               : fmt::format("{} is no host's name that ssh could be given", value.dump());
  }
  if (!value.is_object()) return value.dump() + " is neither a name nor a table";
  std::vector<std::string_view> names;
  for (const HostPart& part : host_parts()) names.push_back(part.name);
  for (const auto& [name, field] : value.items()) {
    const auto part = std::ranges::find(host_parts(), name, &HostPart::name);
    if (part == host_parts().end()) {
      const auto near = base::nearest_name(name, names);
      return fmt::format("a host has no \"{}\"{}", name,
                         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    }
    if (!part->take(field, host)) {
      return fmt::format("{} of host {} is {}, but must be {}", name, value.value("name", "?"),
                         field.dump(), part->allowed);
    }
  }
  return host.name.empty() ? "a host without a name" : "";
}

}  // namespace

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
    if (host.up_megabits) table["up_megabits"] = *host.up_megabits;
    if (host.down_megabits) table["down_megabits"] = *host.down_megabits;
    list.push_back(table.size() == 1 ? table.at("name") : table);
  }
  return list;
}

}  // namespace strait::recipe
