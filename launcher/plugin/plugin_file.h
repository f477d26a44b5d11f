#pragma once

#include "launcher/plugin/plugin.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/stage_job.h"

namespace strait::plugin {

// Loads a shared object and adds its parts to the catalogues. It stays loaded until the process
// ends; loading it again has no effect. Returns the names of its partitions.
//
// UserError: the file is missing, cannot be loaded or is not a plugin; its ABI version differs
// (mismatch, with both versions); the name of a part is taken; it throws.
//
// Catalogues have no lock: load plugins at the start of a program, before other threads read them.
std::vector<std::string> load_plugin(const std::filesystem::path& file);

// Makes the names of all parts known to recipes, and adds the parts that are linked into this
// program; null: none. UserError as above.
void offer_own_parts(void (*offer)(Extensions&));

// Loads plugins that the launcher has sent. UserError (mismatch): the content of a file does not
// match its hash; else as load_plugin().
void load_copies(const std::vector<plan::PluginCopy>& copies);

// Loads in the order given: a plugin can use the parts of earlier ones.
void load_plugins(const std::vector<std::string>& files);

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
