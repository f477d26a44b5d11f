#include "launcher/recipe/link_table.h"

#include <algorithm>

namespace strait::recipe {

const MeasuredHost* LinkTable::host(const std::string& name) const {
  const auto found = std::ranges::find(hosts, name, &MeasuredHost::name);
  return found == hosts.end() ? nullptr : &*found;
}

const MeasuredLink* LinkTable::link(const std::string& from, const std::string& to) const {
  const auto between = [this](const std::string& one, const std::string& other) {
    return std::ranges::find_if(
        links, [&](const MeasuredLink& link) { return link.from == one && link.to == other; });
  };
  auto found = between(from, to);
  if (found == links.end()) found = between(to, from);
  return found == links.end() ? nullptr : &*found;
}

}  // namespace strait::recipe
