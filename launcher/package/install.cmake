# `cmake --install build/release --prefix DIR`: the programs, and the rooms as a package, so that
#   find_package(strait) and target_link_libraries(mine strait::schedules)
# work in a project of one's own. Rooms that need libtorch find it through Torch_DIR there.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/strait)
set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/strait)

get_property(rooms GLOBAL PROPERTY STRAIT_ROOMS)
install(TARGETS ${rooms} EXPORT strait
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${header_dir})
file(GLOB framework_headers RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/framework/*.h)
install(FILES ${framework_headers} DESTINATION ${header_dir}/framework)
if(TARGET strait_plugin_interface)
  # <strait/partition.h>, <strait/plugin.h> and <strait/main.h>; they include the others by their full names.
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/partition.h ${CMAKE_CURRENT_LIST_DIR}/plugin.h
                ${CMAKE_CURRENT_LIST_DIR}/main.h
          DESTINATION ${header_dir})
  install(TARGETS strait_plugin_interface EXPORT strait
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${header_dir})
endif()
install(EXPORT strait NAMESPACE strait:: FILE straitTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/straitConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/straitConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/straitConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/torch.cmake ${CMAKE_BINARY_DIR}/straitConfig.cmake
              ${CMAKE_BINARY_DIR}/straitConfigVersion.cmake
        DESTINATION ${package_dir})

if(STRAIT_TORCH_ROOMS)
  # The installed programs find libtorch where the build found it. Said by name: CMake leaves out by
  # itself what lies below the sources, as .venv does.
  get_filename_component(torch_libraries "${Torch_DIR}/../../../lib" ABSOLUTE)
  # In the build, too: CMake would end the list there with an empty entry, which is the current directory.
  set_target_properties(strait strait-stage-torch PROPERTIES INSTALL_RPATH "${torch_libraries}"
                        BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS strait strait-stage strait-stage-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/strait
          PATTERN plugins EXCLUDE PATTERN __pycache__ EXCLUDE)
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/launcher/tokenizer/strait-tokenizer.py
                   ${CMAKE_SOURCE_DIR}/launcher/recipe/strait-convert.py
                   ${CMAKE_SOURCE_DIR}/launcher/hosts/strait-ray.py
          DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
