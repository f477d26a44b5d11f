#include "launcher/plugin/plugin_file.h"

#include <dlfcn.h>

#include "framework/codec/codecs.h"
#include "framework/store/file_hash.h"
#include "framework/sync/methods.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "models/families.h"
#include "schedules/schedule.h"
#include "stages/partition.h"

namespace strait::plugin {
namespace {

namespace fs = std::filesystem;

// Partitions of each loaded object, by its handle: dlopen returns the same one for the same file.
std::map<void*, std::vector<std::string>>& partitions_of_loaded() {
  static std::map<void*, std::vector<std::string>> all;
  return all;
}

void* open_object(const fs::path& file) {
  if (!fs::exists(file)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "there is no plugin {}; give the path of a shared object, from the "
                          "directory in which strait is started",
                          file.string());
  }
  // An absolute path, because dlopen searches system folders for a bare name.
  void* const object = dlopen(fs::absolute(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    throw base::UserError(base::ExitCode::bad_input, "the plugin {} cannot be loaded: {}",
                          file.string(), dlerror());
  }
  return object;
}

const PluginEntry& entry_of(void* object, const fs::path& file) {
  using EntryFunction = const PluginEntry* (*)();
  auto* const function = reinterpret_cast<EntryFunction>(dlsym(object, "strait_plugin"));
  const PluginEntry* const entry = function == nullptr ? nullptr : function();
  if (entry == nullptr) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} is a shared object but no plugin of strait: it has no "
                          "strait_plugin(), which STRAIT_PLUGIN or STRAIT_PARTITION makes",
                          file.string());
  }
  return *entry;
}

void check_versions(const PluginEntry& entry, const fs::path& file) {
  if (entry.abi != STRAIT_PLUGIN_ABI) {
    throw base::UserError(base::ExitCode::mismatch,
                          "the plugin {} has plugin ABI version {}, but this strait ({}) has "
                          "version {}; build it again with the package of this strait",
                          file.string(), entry.abi, base::build_id(), STRAIT_PLUGIN_ABI);
  }
  if (std::string_view(entry.library) != STRAIT_PLUGIN_LIBRARY) {
    throw base::UserError(base::ExitCode::mismatch,
                          "the plugin {} was built with {}, but this strait ({}) with {}; "
                          "build it again with the same standard library",
                          file.string(), entry.library, base::build_id(), STRAIT_PLUGIN_LIBRARY);
  }
}

// `name` names the plugin in errors.
OfferedParts add_parts(void (*offer)(Extensions&), const std::string& name) {
  OfferedParts parts;
  try {
    offer(parts);
  } catch (const std::exception& error) {
    throw base::UserError(base::ExitCode::bad_input, "{}: {}", name, error.what());
  } catch (...) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} threw an exception that is no std::exception", name);
  }
  return parts;
}

}  // namespace

std::vector<std::string> load_plugin(const fs::path& file) {
  void* const object = open_object(file);
  auto& loaded = partitions_of_loaded();
  if (const auto known = loaded.find(object); known != loaded.end()) return known->second;
  const PluginEntry& entry = entry_of(object, file);
  check_versions(entry, file);
  const std::string name =
      fmt::format("the plugin {} (built with strait {})", file.string(), entry.version);
  return loaded.emplace(object, add_parts(entry.offer, name).partitions()).first->second;
}

void offer_own_parts(void (*offer)(Extensions&)) {
  recipe::set_part_names(part_names);
  if (offer != nullptr) add_parts(offer, "a part linked into this program");
}

void load_plugins(const std::vector<std::string>& files) {
  for (const std::string& file : files) load_plugin(file);
}

void load_copies(const std::vector<plan::PluginCopy>& copies) {
  for (const plan::PluginCopy& copy : copies) {
    if (const std::string hash = store::hash_file(copy.file).hash; hash != copy.hash) {
      throw base::UserError(base::ExitCode::mismatch,
                            "the plugin {} differs from the launcher's: hash {} here, {} "
                            "there; give every host the same file",
                            copy.file, hash, copy.hash);
    }
    load_plugin(copy.file);
  }
}

void OfferedParts::partition(const std::string& name, partition::Partition cut) {
  stages::partitions().add({name, "of a plugin", std::move(cut)});
  partitions_.push_back(name);
}

void OfferedParts::schedule(const schedules::Schedule& schedule) {
  schedules::catalogue().add(schedule);
}

void OfferedParts::family(const models::Family& family) { models::families().add(family); }

void OfferedParts::codec(const codec::CodecOffer& codec) { codec::codecs().add(codec); }

void OfferedParts::sync_method(const sync::MethodOffer& method) { sync::methods().add(method); }

std::vector<std::string> part_names(recipe::PartKind kind) {
  switch (kind) {
    case recipe::PartKind::schedule:
      return schedules::catalogue().names();
    case recipe::PartKind::codec:
      return codec::codecs().names();
    case recipe::PartKind::sync_method:
      break;
  }
  return sync::methods().names();
}

}  // namespace strait::plugin
