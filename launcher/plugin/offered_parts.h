#pragma once

#include <string>
#include <vector>

#include "launcher/plugin/plugin.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::plugin {

// Adds the parts of a plugin to the catalogues of the built-in ones. Their names are then valid in
// the whole process.
class OfferedParts final : public Extensions {
 public:
  void partition(const std::string& name, partition::Partition cut) override;
  void schedule(const schedules::Schedule& schedule) override;
  void family(const models::Family& family) override;
  void codec(const codec::CodecOffer& codec) override;
  void sync_method(const sync::MethodOffer& method) override;

  // In the order in which they were offered.
  const std::vector<std::string>& partitions() const { return partitions_; }

 private:
  std::vector<std::string> partitions_;
};

// Names in the catalogues of a kind: of this build, then of the plugins that are loaded.
std::vector<std::string> part_names(recipe::PartKind kind);

}  // namespace strait::plugin
