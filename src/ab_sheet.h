/* ab_sheet.h - the contact sheet: reference, output and difference beside each other, a row a prompt.
 *
 * The difference is |reference - output| times the largest whole factor that leaves no sample of the whole sheet above 255, so
 * rows can be compared; where nothing differs it is black. AB_SHEET_GAP white pixels between cells. Of a video the frame with
 * the lowest PSNR. When all rows would have more than `most` bytes, every side of a cell is divided by the smallest whole
 * number that helps: pictures by Lanczos, of differences the largest of each square, so that one pixel stays visible.
 * Easy to get wrong: all rows are of one size. */
#ifndef AB_SHEET_H
#define AB_SHEET_H

#include "ab_stages.h"

enum { AB_SHEET_GAP = 8, AB_SHEET_BYTES = 1 << 28 };

typedef struct AbSheet {
    const char *path; /* NULL: no sheet is wanted */
    size_t most;      /* bytes of pixels; 0: AB_SHEET_BYTES */
    uint8_t *rgb;
    int width, height;           /* of the sheet */
    int cell_width, cell_height; /* of pictures before they are divided */
    int divide, rows, largest;   /* largest: difference so far */
} AbSheet;

/* Row k of rows, from stages `pixels` (U8, [H,W,3] or [F,H,W,3]) of equal shapes. ERR_USAGE: another size than the rows
 * before, or no pictures; ERR_MEMORY. */
Status ab_sheet_add(AbSheet *s, int k, int rows, const AbStage *a, const AbStage *b, Error *e);
/* *factor: of the differences. */
Status ab_sheet_write(AbSheet *s, bool overwrite, int *factor, Error *e);
void ab_sheet_free(AbSheet *s);

#endif
