#pragma once

#include <cstdint>
#include <string>
#include <version>

#include "stages/assignment.h"

// How parts of your own come into strait: with <strait/partition.h> for a partition, with
// <strait/plugin.h> for all else. Standard library only; a kind of part brings its own header.
//
//   void offer_mine(strait::Extensions& strait) { strait.schedule({"mine", ...}); }
//   STRAIT_PLUGIN(offer_mine)
//
// Build it as a shared object that links strait::plugin, and name it in a recipe; or call
// strait_main(argc, argv, offer_mine) in a program of your own (launcher/app/strait_main.h). Recipes
// then know the names like those of built-in parts, which are offered in the same way.

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

// What a plugin is handed to offer its parts to. Each call throws std::invalid_argument where the
// name is taken or is none.
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

// Counts the changes of what a plugin and strait know of each other: everything above, and the
// headers that it names. A plugin of another number is refused.
#ifndef STRAIT_PLUGIN_ABI
#define STRAIT_PLUGIN_ABI 5
#endif

// What the standard library's own types look like, on which both have to agree too.
#ifdef _LIBCPP_VERSION
#define STRAIT_PLUGIN_LIBRARY "libc++"
#elif defined(_GLIBCXX_DEBUG)
#define STRAIT_PLUGIN_LIBRARY "libstdc++ in debug mode"
#elif _GLIBCXX_USE_CXX11_ABI
#define STRAIT_PLUGIN_LIBRARY "libstdc++"
#else
#define STRAIT_PLUGIN_LIBRARY "libstdc++ with the strings of before C++11"
#endif

// What a shared object shows of itself before any of its code runs. Only the first field is known
// of every plugin; the others belong to this number.
struct PluginEntry {
  std::uint32_t abi = STRAIT_PLUGIN_ABI;
  const char* version = "";  // of the strait that it was built with
  const char* library = STRAIT_PLUGIN_LIBRARY;
  void (*offer)(Extensions&) = nullptr;
};

}  // namespace strait

// The one symbol that strait looks for. STRAIT_VERSION comes with the CMake target strait::plugin.
#define STRAIT_PLUGIN(offer_function)                                                            \
  extern "C" __attribute__((visibility("default"))) const strait::PluginEntry* strait_plugin() { \
    static const strait::PluginEntry entry{STRAIT_PLUGIN_ABI, STRAIT_VERSION,                    \
                                           STRAIT_PLUGIN_LIBRARY, offer_function};               \
    return &entry;                                                                               \
  }

// A plugin that is one partition.
#define STRAIT_PARTITION(name, function) \
  STRAIT_PLUGIN([](strait::Extensions& strait_offers) { strait_offers.partition(name, function); })
