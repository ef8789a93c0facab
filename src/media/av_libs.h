/* av_libs.h - FFmpeg's libraries (libavformat, libavcodec, libswscale, libswresample, libavutil), looked up when first used.
 *
 * Nothing is linked: with all that they need themselves they are over a hundred libraries, whose loading alone takes longer
 * than most of what ditto does. A build needs their headers (HAVE_LIBAV); without those this header declares nothing. Only the
 * functions listed here exist; add one to its library's list to use it.
 * Easy to get wrong: the sonames are the ABI of the headers of this build, so a machine with another release of FFmpeg lacks
 * them, and is told so. The libraries stay loaded: they keep threads and tables of their own. */
#ifndef AV_LIBS_H
#define AV_LIBS_H

#ifdef HAVE_LIBAV

#include "core/status.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>
#include <libavutil/pixdesc.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>

#define AV_LIBS_FORMAT(X)                                                                                              \
    X(av_find_best_stream) X(av_interleaved_write_frame) X(av_read_frame) X(av_write_trailer)                          \
    X(avformat_alloc_output_context2) X(avformat_close_input) X(avformat_find_stream_info) X(avformat_free_context)    \
    X(avformat_new_stream) X(avformat_open_input) X(avformat_write_header) X(avio_alloc_context) X(avio_context_free)
#define AV_LIBS_CODEC(X)                                                                                               \
    X(av_get_bits_per_sample) X(av_packet_alloc) X(av_packet_free) X(av_packet_rescale_ts) X(av_packet_unref)          \
    X(avcodec_alloc_context3) X(avcodec_find_decoder) X(avcodec_find_encoder_by_name) X(avcodec_free_context)           \
    X(avcodec_get_name)                                                                                                \
    X(avcodec_open2) X(avcodec_parameters_from_context) X(avcodec_parameters_to_context) X(avcodec_profile_name)       \
    X(avcodec_receive_frame) X(avcodec_receive_packet) X(avcodec_send_frame) X(avcodec_send_packet)
#define AV_LIBS_UTIL(X)                                                                                                \
    X(av_channel_layout_default) X(av_color_primaries_name) X(av_color_range_name) X(av_color_space_name)              \
    X(av_color_transfer_name)                                                                                          \
    X(av_dict_free) X(av_dict_get) X(av_dict_set) X(av_frame_alloc) X(av_frame_free) X(av_frame_get_buffer)            \
    X(av_frame_make_writable) X(av_freep) X(av_get_pix_fmt_name) X(av_log_set_level) X(av_malloc)                      \
    X(av_pix_fmt_desc_get) X(av_strerror)
#define AV_LIBS_SCALE(X)                                                                                               \
    X(sws_freeContext) X(sws_getCoefficients) X(sws_getContext) X(sws_scale) X(sws_setColorspaceDetails)
#define AV_LIBS_RESAMPLE(X) X(swr_alloc_set_opts2) X(swr_convert) X(swr_free) X(swr_get_delay) X(swr_init)

typedef struct AvLibs {
#define X(name) __typeof__(&name) name##_;
    AV_LIBS_FORMAT(X) AV_LIBS_CODEC(X) AV_LIBS_UTIL(X) AV_LIBS_SCALE(X) AV_LIBS_RESAMPLE(X)
#undef X
} AvLibs;

/* All functions, and libav's own log switched off. ERR_IO names the library or function that is missing; *out is empty then. */
Status av_libs_open(AvLibs *out, Error *e);

#endif

#endif
