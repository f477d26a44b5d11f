#include <unordered_map>
#include <utility>

#include "launcher/recipe/links.h"

namespace strait::recipe {

// Views and numbers refer to `list`, which never moves.
struct MeasuredLinks::Indexed {
  std::vector<MeasuredLink> list;
  std::unordered_map<std::string_view, std::uint64_t> hosts;
  std::unordered_map<std::uint64_t, std::size_t> by_hosts;

  explicit Indexed(std::vector<MeasuredLink> links) : list(std::move(links)) {
    by_hosts.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::uint64_t from = hosts.emplace(list[i].from, hosts.size()).first->second;
      const std::uint64_t to = hosts.emplace(list[i].to, hosts.size()).first->second;
      by_hosts.emplace(key(from, to), i);
    }
  }
  static std::uint64_t key(std::uint64_t from, std::uint64_t to) { return from << 32U | to; }
};

MeasuredLinks::MeasuredLinks(std::vector<MeasuredLink> links) {
  if (!links.empty()) indexed_ = std::make_shared<const Indexed>(std::move(links));
}

const std::vector<MeasuredLink>& MeasuredLinks::list() const {
  static const std::vector<MeasuredLink> kNone;
  return indexed_ == nullptr ? kNone : indexed_->list;
}

const MeasuredLink* MeasuredLinks::find(const std::string& from, const std::string& to) const {
  if (indexed_ == nullptr) return nullptr;
  const auto& [list, hosts, by_hosts] = *indexed_;
  const auto sender = hosts.find(from);
  const auto receiver = hosts.find(to);
  if (sender == hosts.end() || receiver == hosts.end()) return nullptr;
  const auto found = by_hosts.find(Indexed::key(sender->second, receiver->second));
  return found == by_hosts.end() ? nullptr : &list[found->second];
}

void MeasuredLinks::put(const std::vector<MeasuredLink>& newer) {
  std::vector<MeasuredLink> links = list();
  const MeasuredLinks replaced(newer);
  std::erase_if(links, [&replaced](const MeasuredLink& old) {
    return replaced.find(old.from, old.to) != nullptr;
  });
  links.insert(links.end(), newer.begin(), newer.end());
  *this = MeasuredLinks(std::move(links));
}

}  // namespace strait::recipe
