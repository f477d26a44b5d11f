#pragma once

#include <version>

#include "stages/assignment.h"

// The plugin interface. Include it as <strait/partition.h> for a partition, as <strait/plugin.h>
// for all other parts. Needs only the standard library; each kind of part has its own header.
//
//   void offer_mine(strait::Extensions& strait) { strait.schedule({"mine", ...}); }
//   STRAIT_PLUGIN(offer_mine)
//
// Build it as a shared object that links strait::plugin, and list it in a recipe (`plugins`), or
// call strait_main(argc, argv, offer_mine) in your own program (launcher/compute/strait_main.h).
// Recipes use the names like those of built-in parts, which are added in the same way.

namespace strait {

namespace schedules {
struct Schedule;
}
namespace models {
struct Family;
}
namespace codec {
struct CodecOffer;
}
namespace sync {
struct MethodOffer;
}

// Receives the parts of a plugin. Each function throws std::invalid_argument if the name is taken
// or not valid.
class Extensions {
 public:
  // stages/assignment.h
  virtual void partition(const std::string& name, partition::Partition cut) = 0;
  // schedules/schedule.h
  virtual void schedule(const schedules::Schedule& schedule) = 0;
  // models/families.h
  virtual void family(const models::Family& family) = 0;
  // framework/codec/codecs.h
  virtual void codec(const codec::CodecOffer& codec) = 0;
  // framework/sync/methods.h
  virtual void sync_method(const sync::MethodOffer& method) = 0;

 protected:
  ~Extensions() = default;
};

// Version of the interface: everything above, and the headers that it names. A plugin with another
// version is refused.
#ifndef STRAIT_PLUGIN_ABI
#define STRAIT_PLUGIN_ABI 19
#endif

// The standard library: layouts of its types have to be equal in plugin and strait.
#ifdef _LIBCPP_VERSION
#define STRAIT_PLUGIN_LIBRARY "libc++"
#elif defined(_GLIBCXX_DEBUG)
#define STRAIT_PLUGIN_LIBRARY "libstdc++ in debug mode"
#elif _GLIBCXX_USE_CXX11_ABI
#define STRAIT_PLUGIN_LIBRARY "libstdc++"
#else
#define STRAIT_PLUGIN_LIBRARY "libstdc++ with the strings of before C++11"
#endif

// Read before any other code of the plugin runs. Only `abi` has the same position in all versions;
// the other fields belong to this version.
struct PluginEntry {
  std::uint32_t abi = STRAIT_PLUGIN_ABI;
  const char* version = "";  // of the strait that it was built with
  const char* library = STRAIT_PLUGIN_LIBRARY;
  void (*offer)(Extensions&) = nullptr;
};

}  // namespace strait

// The only symbol that strait looks up. STRAIT_VERSION comes with the CMake target strait::plugin.
#define STRAIT_PLUGIN(offer_function)                                                            \
  extern "C" __attribute__((visibility("default"))) const strait::PluginEntry* strait_plugin() { \
    static const strait::PluginEntry entry{STRAIT_PLUGIN_ABI, STRAIT_VERSION,                    \
                                           STRAIT_PLUGIN_LIBRARY, offer_function};               \
    return &entry;                                                                               \
  }

// A plugin that is one partition.
#define STRAIT_PARTITION(name, function) \
  STRAIT_PLUGIN([](strait::Extensions& strait_offers) { strait_offers.partition(name, function); })
