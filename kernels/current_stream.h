#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace strait::kernels {

// The current stream of this thread on a device of any type.
inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Another stream than the current one, for copies during compute.
inline c10::Stream stream_for_copies(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// An event after all work that the stream has now.
inline std::shared_ptr<c10::Event> event_on(const c10::Stream& stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

}  // namespace strait::kernels
